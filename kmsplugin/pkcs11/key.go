//go:build cgo

package pkcs11

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

const keySize = 32 // bytes

// A ring is the keys of a label on a token as a look found them. It is read-only.
type ring struct {
	ids []keyID // the oldest first
	// handles have one object each, or more where a CKA_ID is there twice.
	handles map[keyID][]cryptoki.ObjectHandle
	// problem is why nothing is to be wrapped, whatever unwraps.
	problem error
}

// String tells rings apart.
func (r *ring) String() string {
	text := ""
	for _, id := range r.ids {
		text += fmt.Sprintf("%x %v ", id[:], r.handles[id])
	}
	return text + fmt.Sprint(r.problem)
}

func (r *ring) versions() kmsplugin.Versions {
	found := kmsplugin.Versions{Writes: len(r.ids) - 1}
	for _, id := range r.ids {
		found.All = append(found.All, id.version())
	}
	return found
}

func (r *ring) hasAll(other *ring) bool {
	return !slices.ContainsFunc(other.ids, func(id keyID) bool { return len(r.handles[id]) == 0 })
}

// lookUp reads what keys there are of the label. The error is that they cannot be read; what is
// wrong with them is the ring's problem.
func (t *Token) lookUp(d driver, h cryptoki.SessionHandle) (*ring, error) {
	objects, err := d.find(h, []*cryptoki.Attribute{
		cryptoki.NewAttribute(cryptoki.CKA_CLASS, cryptoki.CKO_SECRET_KEY),
		cryptoki.NewAttribute(cryptoki.CKA_TOKEN, true),
		cryptoki.NewAttribute(cryptoki.CKA_LABEL, t.config.Key),
	})
	if err != nil {
		return nil, err
	}
	found := &ring{handles: map[keyID][]cryptoki.ObjectHandle{}}
	var problems []error
	for _, object := range objects {
		id, err := t.examine(d, h, object)
		if isCode(err, cryptoki.CKR_OBJECT_HANDLE_INVALID) {
			continue // was deleted meanwhile
		}
		var bad badKey
		if err != nil && !errors.As(err, &bad) {
			return nil, err
		}
		if err != nil {
			problems = append(problems, err)
			if !bad.unwraps {
				continue
			}
		}
		if found.handles[id] == nil {
			found.ids = append(found.ids, id)
		}
		found.handles[id] = append(found.handles[id], object)
	}
	slices.SortFunc(found.ids, older)
	found.problem = t.problem(found, problems)
	return found, nil
}

// problem is what is wrong with the keys of the label as a whole.
func (t *Token) problem(found *ring, problems []error) error {
	for _, id := range found.ids {
		if n := len(found.handles[id]); n > 1 {
			problems = append(problems, fmt.Errorf("version %s is there %d times, with one CKA_ID %x: delete those that are no copy of the first, once nothing needs them", id.label(), n, id[:]))
		}
	}
	switch {
	case len(problems) > 0:
		return fmt.Errorf("%w: %w: %s, key %q: %w", kmsplugin.ErrKeyDisabled, ErrMistake, t, t.config.Key, errors.Join(problems...))
	case len(found.ids) == 0:
		return fmt.Errorf("%w: %w: %s has no secret key with the label %q: make one with \"atrest-kms-plugin pkcs11 create\", or restore it", kmsplugin.ErrKeyDisabled, ErrNoKey, t, t.config.Key)
	}
	return nil
}

// A badKey is a key that nothing is wrapped under, or beside.
type badKey struct {
	what    string
	unwraps bool
}

func (b badKey) Error() string { return b.what }

// examine tells which version an object is, and what is wrong with it.
func (t *Token) examine(d driver, h cryptoki.SessionHandle, object cryptoki.ObjectHandle) (keyID, error) {
	a, err := attributes(d, h, object, cryptoki.CKA_ID, cryptoki.CKA_KEY_TYPE)
	if err != nil {
		return keyID{}, err
	}
	raw := a[cryptoki.CKA_ID]
	id, ours := parseKeyID(raw)
	switch {
	case number(a[cryptoki.CKA_KEY_TYPE]) != cryptoki.CKK_AES:
		return id, badKey{what: fmt.Sprintf("the one with CKA_ID %.64x is not of AES: give it another label", raw)}
	case !ours:
		return id, badKey{what: fmt.Sprintf("the one with CKA_ID %.64x was not made by \"atrest-kms-plugin pkcs11 create\" or \"rotate\", and a key that is made again could have the same: give it another label", raw)}
	}
	a, err = attributes(d, h, object, cryptoki.CKA_VALUE_LEN, cryptoki.CKA_SENSITIVE, cryptoki.CKA_EXTRACTABLE, cryptoki.CKA_ENCRYPT, cryptoki.CKA_DECRYPT)
	if err != nil {
		return id, err
	}
	switch {
	case number(a[cryptoki.CKA_VALUE_LEN]) != keySize:
		return id, badKey{what: fmt.Sprintf("version %s has %d bytes, and not %d: give it another label", id.label(), number(a[cryptoki.CKA_VALUE_LEN]), keySize)}
	case !isTrue(a[cryptoki.CKA_DECRYPT]):
		return id, badKey{what: fmt.Sprintf("version %s may not decrypt: set CKA_DECRYPT, or give it another label once nothing needs it", id.label())}
	case !isTrue(a[cryptoki.CKA_ENCRYPT]):
		return id, badKey{unwraps: true, what: fmt.Sprintf("version %s may not encrypt: set CKA_ENCRYPT", id.label())}
	case !t.config.AllowExtractable && (!isTrue(a[cryptoki.CKA_SENSITIVE]) || isTrue(a[cryptoki.CKA_EXTRACTABLE])):
		return id, badKey{unwraps: true, what: fmt.Sprintf("version %s can be read from the token (CKA_SENSITIVE is %t and CKA_EXTRACTABLE %t): set them to true and false and rotate, or say --allow-extractable", id.label(), isTrue(a[cryptoki.CKA_SENSITIVE]), isTrue(a[cryptoki.CKA_EXTRACTABLE]))}
	}
	return id, nil
}

// attributes reads some of an object.
func attributes(d driver, h cryptoki.SessionHandle, object cryptoki.ObjectHandle, types ...uint) (map[uint][]byte, error) {
	template := make([]*cryptoki.Attribute, len(types))
	for i, one := range types {
		template[i] = cryptoki.NewAttribute(one, nil)
	}
	found, err := d.GetAttributeValue(h, object, template)
	if err != nil {
		return nil, err
	}
	all := map[uint][]byte{}
	for _, a := range found {
		all[a.Type] = a.Value
	}
	return all, nil
}

func isTrue(value []byte) bool { return len(value) == 1 && value[0] != 0 }

// number reads a CK_ULONG, or is the largest one there is.
func number(value []byte) uint64 {
	switch len(value) {
	case 4:
		return uint64(binary.NativeEndian.Uint32(value))
	case 8:
		return binary.NativeEndian.Uint64(value)
	}
	return ^uint64(0)
}
