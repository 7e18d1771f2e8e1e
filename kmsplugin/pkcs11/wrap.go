//go:build cgo

package pkcs11

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A ciphertext is the byte 1, the IV, and what AES-GCM made: as long as the DEK and a tag. With
// random IVs of 96 bits a key may be used 2^32 times (NIST SP 800-38D, 8.3). Nobody counts: a
// KEK wraps DEKs alone, of which an apiserver makes some an hour, and the kit's test one a
// minute, which is 2^32 in thousands of years.
const (
	form    = 1
	ivSize  = 12
	tagSize = 16
)

// Wrap wraps under a key, and reads from the token which key that was, over the same line.
func (s *session) Wrap(ctx context.Context, v kmsplugin.Version, dek, aad []byte) (ciphertext []byte, used kmsplugin.Version, err error) {
	id, _ := parseKeyID(v.Lineage)
	found := s.keys.Load()
	if found.problem != nil || !found.has(id) {
		return nil, used, cmp.Or(found.problem, fmt.Errorf("%w: %s: version %s was not there when it was looked at last", kmsplugin.ErrUnavailable, s.token, id.label()))
	}
	mine := bytes.Clone(dek) // a call that hangs has it for longer
	a := deed[[]byte]{session: s, what: "wrap under version " + id.label(),
		likes: func(l *line) bool { return l.has(id) },
		do:    func(_ context.Context, l *line) ([]byte, error) { return l.wrap(s.token, id, mine, aad) },
		over:  func() { clear(mine) },
	}.done(ctx)
	s.wrapped(a.err)
	return a.value, id.version(), s.token.trust.tell(a.err)
}

// wrap wraps with the handle that is known, and with what the token tells now if that fails.
func (l *line) wrap(t *Token, id keyID, dek, aad []byte) (ciphertext []byte, err error) {
	for _, anew := range []bool{false, true} {
		var keys []object
		if keys, err = l.key(t, id, anew); err != nil {
			return nil, err
		}
		if ciphertext, err = keys[0].seal(aad, dek); err == nil {
			err = keys[0].is(t, id)
		}
		if err == nil {
			return ciphertext, nil
		}
		if !mayBeOld(err) {
			break
		}
	}
	return nil, err
}

// doesNotOpen is what a ciphertext of which that is known is said to be.
const doesNotOpen = "it was damaged, or wrapped by something else"

// Unwrap is the way back. [kmsplugin.ErrUnknownKey] and [kmsplugin.ErrInvalid] have people
// delete what is in etcd: they are said here alone, and once a fresh look at the token has shown it.
func (s *session) Unwrap(ctx context.Context, v kmsplugin.Version, ciphertext, aad []byte) ([]byte, error) {
	dek, err := s.unwrap(ctx, v, ciphertext, aad)
	s.unwrapped(err)
	return dek, err
}

func (s *session) unwrap(ctx context.Context, v kmsplugin.Version, ciphertext, aad []byte) ([]byte, error) {
	id, _ := parseKeyID(v.Lineage)
	if len(ciphertext) <= 1+ivSize+tagSize || ciphertext[0] != form {
		return nil, fmt.Errorf("%w: %s: %d bytes under version %s are no ciphertext of it: %s", kmsplugin.ErrInvalid, s.token, len(ciphertext), id.label(), doesNotOpen)
	}
	if err := s.knows(ctx, id); err != nil {
		return nil, err
	}
	a := deed[[]byte]{session: s, what: "unwrap with version " + id.label(),
		likes: func(l *line) bool { return l.has(id) }, do: opening{s.token, id, ciphertext, aad}.over}.done(ctx)
	if problem := s.keys.Load().problem; errors.Is(a.err, errDoesNotOpen) && problem != nil {
		return nil, problem // another key may be the right one
	} else if errors.Is(a.err, errDoesNotOpen) {
		return nil, fmt.Errorf("%w: %s: the ciphertext does not open under version %s, under which others do: %s", kmsplugin.ErrInvalid, s.token, id.label(), doesNotOpen)
	}
	return a.value, a.err
}

// knows is an error if a key was not there at the last look, and is not at another one.
func (s *session) knows(ctx context.Context, id keyID) error {
	if s.keys.Load().has(id) {
		return nil
	}
	found, err := s.lookAnew(ctx, context.WithoutCancel(ctx)) // any caller may give up
	switch {
	case err != nil:
		return err
	case found.has(id):
		return nil
	case found.problem != nil:
		return found.problem
	case found.partial:
		return fmt.Errorf("%w: %s shows no version %s, and not all sessions could be asked, or there is one alone: another HSM of a cluster may have it", kmsplugin.ErrUnavailable, s.token, id.label())
	}
	return fmt.Errorf("%w: %s has no %s", kmsplugin.ErrUnknownKey, s.token, id.version())
}
