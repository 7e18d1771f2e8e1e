//go:build cgo

package pkcs11

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	cryptoki "github.com/miekg/pkcs11"

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

// Wrap wraps under a key, and reads from the token which key the handle stands for then: a
// module may give the handle of a key that was deleted to another.
func (s *session) Wrap(ctx context.Context, v kmsplugin.Version, dek, aad []byte) (ciphertext []byte, used kmsplugin.Version, err error) {
	id, _ := parseKeyID(v.Lineage)
	found := s.keys.Load()
	handles := found.handles[id]
	if found.problem != nil || len(handles) == 0 {
		return nil, used, cmp.Or(found.problem, fmt.Errorf("%w: %s: version %s was not there when it was looked at last", kmsplugin.ErrUnavailable, s.token, id.label()))
	}
	for range 2 {
		err = s.call(ctx, "wrap under version "+id.label(), func(d driver, h cryptoki.SessionHandle) error {
			ciphertext, used, err = sealUnderWhat(d, h, handles[0], aad, dek)
			return err
		})
		if err == nil || isAway(err) || !saysNothing(err) {
			break
		}
	}
	s.wrapped(err)
	return ciphertext, used, s.token.trust.tell(err)
}

func sealUnderWhat(d driver, h cryptoki.SessionHandle, key cryptoki.ObjectHandle, aad, dek []byte) ([]byte, kmsplugin.Version, error) {
	ciphertext, err := seal(d, h, key, aad, dek)
	if err != nil {
		return nil, kmsplugin.Version{}, err
	}
	id, err := which(d, h, key)
	if err != nil {
		return nil, kmsplugin.Version{}, err
	}
	return ciphertext, id.version(), nil
}

var errAnother = fmt.Errorf("%w: the key is another one by now", kmsplugin.ErrUnavailable)

// which reads from the token which key a handle stands for now.
func which(d driver, h cryptoki.SessionHandle, key cryptoki.ObjectHandle) (keyID, error) {
	a, err := attributes(d, h, key, cryptoki.CKA_ID)
	if err != nil {
		return keyID{}, err
	}
	id, ours := parseKeyID(a[cryptoki.CKA_ID])
	if !ours {
		return keyID{}, errAnother
	}
	return id, nil
}

// seal has the token encrypt with an IV that is drawn here, or with its own: some tokens, those
// of FIPS 140 among them, take none, and write the one that they drew where the zeros are
// that they want to be given.
func seal(d driver, h cryptoki.SessionHandle, key cryptoki.ObjectHandle, aad, dek []byte) ([]byte, error) {
	iv := make([]byte, ivSize)
	_, _ = rand.Read(iv) // which ends the process rather than fail
	ct, used, err := d.seal(h, key, bytes.Clone(iv), aad, dek)
	if isCode(err, cryptoki.CKR_MECHANISM_PARAM_INVALID, cryptoki.CKR_ARGUMENTS_BAD) {
		ct, used, err = d.seal(h, key, make([]byte, ivSize), aad, dek)
	}
	switch {
	case err != nil:
		return nil, err
	case len(used) != ivSize || bytes.Equal(used, make([]byte, ivSize)):
		return nil, fmt.Errorf("%w: it encrypted with an IV of %d bytes that it does not tell, or with zeros: this token's AES-GCM cannot be used", kmsplugin.ErrKeyDisabled, len(used))
	case len(ct) != len(dek)+tagSize:
		return nil, fmt.Errorf("%w: it made %d bytes of %d, and not %d more: this token's AES-GCM cannot be used", kmsplugin.ErrKeyDisabled, len(ct), len(dek), tagSize)
	}
	return append(append([]byte{form}, used...), ct...), nil
}

// handles are what the key had at the last look, or has now.
func (s *session) handles(ctx context.Context, id keyID) ([]cryptoki.ObjectHandle, error) {
	if handles := s.keys.Load().handles[id]; len(handles) > 0 {
		return handles, nil
	}
	found, err := s.lookAnew(ctx, context.WithoutCancel(ctx)) // any caller may give up
	switch {
	case err != nil:
		return nil, err
	case len(found.handles[id]) > 0:
		return found.handles[id], nil
	case found.problem != nil:
		return nil, found.problem
	case found.partial:
		return nil, fmt.Errorf("%w: %s shows no version %s, and not all sessions could be asked, or there is one alone: another HSM of a cluster may have it", kmsplugin.ErrUnavailable, s.token, id.label())
	}
	return nil, fmt.Errorf("%w: %s has no %s", kmsplugin.ErrUnknownKey, s.token, id.version())
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
	handles, err := s.handles(ctx, id)
	if err != nil {
		return nil, err
	}
	o := opening{s, id, ciphertext, aad}
	dek, err := o.any(handles, func(handle cryptoki.ObjectHandle) ([]byte, error) { return o.with(ctx, handle) })
	if err == nil || isAway(err) || !saysNothing(err) {
		return dek, err
	}
	if handles, err = o.find(ctx); err != nil {
		return nil, err
	}
	dek, err = o.any(handles, func(handle cryptoki.ObjectHandle) ([]byte, error) { return o.surely(ctx, handle) })
	if problem := s.keys.Load().problem; errors.Is(err, errDoesNotOpen) && problem != nil {
		return nil, problem // another key may be the right one
	} else if errors.Is(err, errDoesNotOpen) {
		return nil, fmt.Errorf("%w: %s: the ciphertext does not open under version %s, under which others do: %s", kmsplugin.ErrInvalid, s.token, id.label(), doesNotOpen)
	}
	return dek, err
}
