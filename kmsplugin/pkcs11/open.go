//go:build cgo

package pkcs11

import (
	"context"
	"errors"
	"fmt"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// opening is a ciphertext that is to be decrypted with a key, which may be there more than once.
type opening struct {
	*session
	id              keyID
	ciphertext, aad []byte
}

// errDoesNotOpen is that a key which opens others does not open this.
var errDoesNotOpen = errors.New("the ciphertext does not open")

// any is what one of the handles gives. If none does, an outage of one says more than that
// another one does not open it.
func (o opening) any(handles []cryptoki.ObjectHandle, open func(cryptoki.ObjectHandle) ([]byte, error)) (dek []byte, failed error) {
	for _, handle := range handles {
		dek, err := open(handle)
		if err == nil {
			return dek, nil
		}
		if failed == nil || errors.Is(failed, errDoesNotOpen) {
			failed = err
		}
	}
	return nil, failed
}

// with decrypts.
func (o opening) with(ctx context.Context, key cryptoki.ObjectHandle) (dek []byte, err error) {
	err = o.call(ctx, "unwrap with version "+o.id.label(), func(d driver, h cryptoki.SessionHandle) (err error) {
		dek, err = o.decrypt(d, h, key)
		return err
	})
	return dek, err
}

func (o opening) decrypt(d driver, h cryptoki.SessionHandle, key cryptoki.ObjectHandle) ([]byte, error) {
	dek, err := d.open(h, key, o.ciphertext[1:1+ivSize], o.aad, o.ciphertext[1+ivSize:])
	if err == nil {
		o.wraps.Store(0)
	}
	return dek, err
}

// find has the token say which handles the key has now.
func (o opening) find(ctx context.Context) (handles []cryptoki.ObjectHandle, err error) {
	err = o.call(ctx, "find version "+o.id.label(), func(d driver, h cryptoki.SessionHandle) (err error) {
		handles, err = d.find(h, append(o.token.keys(), cryptoki.NewAttribute(cryptoki.CKA_ID, o.id[:])))
		if err == nil && len(handles) == 0 {
			err = errAnother
		}
		return err
	})
	return handles, err
}

// proof is how often it is tried whether a ciphertext opens. Tries come in pairs, one right after
// another: HSMs of a cluster that take turns are not all sick.
const proof = 3

// surely decrypts with a handle that was found just now. It is the ciphertext that does not open
// only if the same key, in the same session, opens another one before and after each time, and
// every answer can be about the ciphertext. One session may be of one HSM of several.
func (o opening) surely(ctx context.Context, key cryptoki.ObjectHandle) (dek []byte, err error) {
	err = o.call(ctx, "unwrap with version "+o.id.label(), func(d driver, h cryptoki.SessionHandle) error {
		for range proof {
			if err := o.try(ctx, d, h, key); err != nil {
				return err
			}
			for range 2 {
				if dek, err = o.decrypt(d, h, key); err == nil || !isOfCiphertext(err) {
					return err
				}
			}
		}
		if err := o.try(ctx, d, h, key); err != nil {
			return err
		}
		return errDoesNotOpen
	})
	return dek, err
}

// try wraps and unwraps with a handle, and is an error if that is not the key's.
func (o opening) try(ctx context.Context, d driver, h cryptoki.SessionHandle, key cryptoki.ObjectHandle) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: there was no time to see whether it is the ciphertext: %w", kmsplugin.ErrUnavailable, context.Cause(ctx))
	}
	probe := []byte("as long as a DEK, used for none.")
	sealed, err := seal(d, h, key, probe, probe)
	if err == nil {
		_, err = d.open(h, key, sealed[1:1+ivSize], probe, sealed[1+ivSize:])
	}
	if err != nil {
		return err
	}
	if is, err := which(d, h, key); err != nil || is != o.id {
		return errors.Join(errAnother, err)
	}
	return nil
}
