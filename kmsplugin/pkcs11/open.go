//go:build cgo

package pkcs11

import (
	"context"
	"errors"
	"fmt"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// opening is a ciphertext that is to be decrypted with a key, which may be there more than once.
type opening struct {
	token           *Token
	id              keyID
	ciphertext, aad []byte
}

// errDoesNotOpen is that a key which opens others does not open this.
var errDoesNotOpen = errors.New("the ciphertext does not open")

// over decrypts over a line, with the handles that are known there, and if these do not with what the
// token tells now.
func (o opening) over(ctx context.Context, l *line) (dek []byte, err error) {
	keys, err := l.key(o.token, o.id, false)
	if err != nil {
		return nil, err
	}
	if dek, err = anyOf(keys, func(key object) ([]byte, error) { return key.open(o.ciphertext, o.aad) }); mayBeOld(err) {
		if keys, err = l.key(o.token, o.id, true); err != nil {
			return nil, err
		}
		dek, err = anyOf(keys, func(key object) ([]byte, error) { return o.surely(ctx, key) })
	}
	if ctx.Err() != nil { // nobody waits for it any more
		clear(dek)
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return dek, err
}

// anyOf is what one of the handles gives. If none does, an outage of one says more than that
// another one does not open it.
func anyOf(keys []object, open func(object) ([]byte, error)) (dek []byte, failed error) {
	for _, key := range keys {
		dek, err := open(key)
		if err == nil {
			return dek, nil
		}
		if failed == nil || errors.Is(failed, errDoesNotOpen) {
			failed = err
		}
	}
	return nil, failed
}

// proof is how often it is tried whether a ciphertext opens. Tries come in pairs, one right after
// another: HSMs of a cluster that take turns are not all sick.
const proof = 3

// surely decrypts with a handle that was found just now. It is the ciphertext that does not open
// only if the same key, over the same line, opens another one before and after each time, and
// every answer can be about the ciphertext. One line may be to one HSM of several.
func (o opening) surely(ctx context.Context, key object) (dek []byte, err error) {
	for range proof {
		if err := o.try(ctx, key); err != nil {
			return nil, err
		}
		for range 2 {
			if dek, err = key.open(o.ciphertext, o.aad); err == nil || !isOfCiphertext(err) {
				return dek, err
			}
		}
	}
	if err := o.try(ctx, key); err != nil {
		return nil, err
	}
	return nil, errDoesNotOpen
}

// try wraps and unwraps with a handle, and is an error if that is not the key's.
func (o opening) try(ctx context.Context, key object) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: there was no time to see whether it is the ciphertext: %w", kmsplugin.ErrUnavailable, context.Cause(ctx))
	}
	probe := []byte("as long as a DEK, used for none.")
	sealed, err := key.seal(probe, probe)
	if err == nil {
		_, err = key.open(sealed, probe)
	}
	if err == nil {
		err = key.is(o.token, o.id)
	}
	return err
}
