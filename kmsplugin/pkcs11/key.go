//go:build cgo

package pkcs11

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
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
	// partial is that not all could be asked, so that there may be others.
	partial bool
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
	found := kmsplugin.Versions{Writes: len(r.ids) - 1, Partial: r.partial}
	for _, id := range r.ids {
		found.All = append(found.All, id.version())
	}
	return found
}

// beside is with what others may have still.
func (r *ring) beside(before *ring) *ring {
	all := &ring{handles: maps.Clone(r.handles), problem: r.problem, partial: true}
	if len(r.ids) > 0 { // to who sees none at all, none is hidden
		for _, id := range before.ids {
			if len(all.handles[id]) == 0 {
				all.handles[id] = before.handles[id]
			}
		}
	}
	all.ids = slices.SortedFunc(maps.Keys(all.handles), older)
	return all
}

// objects adds those of all keys.
func (r *ring) objects(to []cryptoki.ObjectHandle) []cryptoki.ObjectHandle {
	for _, handles := range r.handles {
		to = append(to, handles...)
	}
	return to
}

func (r *ring) hasAll(other *ring) bool {
	return !slices.ContainsFunc(other.ids, func(id keyID) bool { return len(r.handles[id]) == 0 })
}

// lookUp reads what keys there are of the label, as far as they are not known. The error is that
// they cannot be read; what is wrong with them is the ring's problem.
func (t *Token) lookUp(ctx context.Context, d driver, h cryptoki.SessionHandle, known readings, others ...cryptoki.ObjectHandle) (*ring, error) {
	objects, err := d.find(h, t.keys())
	if err != nil {
		return nil, err
	}
	for _, object := range others {
		if !slices.Contains(objects, object) {
			objects = append(objects, object)
		}
	}
	slow, err := known.update(ctx, t, d, h, objects)
	if err != nil {
		return nil, err
	}
	found := &ring{handles: map[keyID][]cryptoki.ObjectHandle{}}
	var problems []error
	for _, object := range objects {
		is, there := known[object]
		var bad badKey
		switch {
		case !there:
			continue
		case errors.As(is.bad, &bad):
			problems = append(problems, bad)
			if !bad.unwraps {
				continue
			}
		}
		if found.handles[is.id] == nil {
			found.ids = append(found.ids, is.id)
		}
		found.handles[is.id] = append(found.handles[is.id], object)
	}
	slices.SortFunc(found.ids, older)
	if found.problem = t.problem(found, problems); slow != nil {
		found.problem = slow
	}
	return found, nil
}

// keys is a template of what is looked for.
func (t *Token) keys() []*cryptoki.Attribute {
	return []*cryptoki.Attribute{
		cryptoki.NewAttribute(cryptoki.CKA_CLASS, cryptoki.CKO_SECRET_KEY),
		cryptoki.NewAttribute(cryptoki.CKA_TOKEN, true),
		cryptoki.NewAttribute(cryptoki.CKA_LABEL, t.config.Key),
	}
}

// lookTwice reads them until they are the same twice: while another process makes a key SoftHSM
// does not find what is there.
func (t *Token) lookTwice(ctx context.Context, d driver, h cryptoki.SessionHandle) (found *ring, err error) {
	known, last := readings{}, ""
	for n := range atMost {
		if found, err = t.lookUp(ctx, d, h, known); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		is := fmt.Sprint(found, err)
		if is == last || !t.rests(ctx, pause<<n) {
			break
		}
		last = is
	}
	return found, err
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
		return fmt.Errorf("%w: %w: %s has no secret key with the label %q: restore it or, if there never was one, make it with \"atrest-kms-plugin pkcs11 create\"", kmsplugin.ErrKeyDisabled, ErrNoKey, t, t.config.Key)
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
	which := []uint{cryptoki.CKA_ID, cryptoki.CKA_KEY_TYPE}
	what := append(which, cryptoki.CKA_VALUE_LEN, cryptoki.CKA_PRIVATE, cryptoki.CKA_SENSITIVE, cryptoki.CKA_EXTRACTABLE, cryptoki.CKA_ENCRYPT, cryptoki.CKA_DECRYPT)
	a, err := attributes(d, h, object, what...)
	if isCode(err, cryptoki.CKR_ATTRIBUTE_TYPE_INVALID, cryptoki.CKR_ATTRIBUTE_SENSITIVE) { // as a key of another type has not all of them
		if other, failed := attributes(d, h, object, which...); failed == nil && number(other[cryptoki.CKA_KEY_TYPE]) != cryptoki.CKK_AES {
			a, err = other, nil
		}
	}
	if err != nil {
		return keyID{}, err
	}
	raw := a[cryptoki.CKA_ID]
	id, ours := parseKeyID(raw)
	may := func(attribute uint) bool { return isTrue(a[attribute]) }
	switch {
	case number(a[cryptoki.CKA_KEY_TYPE]) != cryptoki.CKK_AES:
		return id, badKey{what: fmt.Sprintf("the one with CKA_ID %.64x is not of AES: give it another label", raw)}
	case !ours:
		return id, badKey{what: fmt.Sprintf("the one with CKA_ID %.64x was not made by \"atrest-kms-plugin pkcs11 create\" or \"rotate\", and a key that is made again could have the same: give it another label", raw)}
	case number(a[cryptoki.CKA_VALUE_LEN]) != keySize:
		return id, badKey{what: fmt.Sprintf("version %s has %d bytes, and not %d: give it another label", id.label(), number(a[cryptoki.CKA_VALUE_LEN]), keySize)}
	case !may(cryptoki.CKA_DECRYPT):
		return id, badKey{what: fmt.Sprintf("version %s may not decrypt: set CKA_DECRYPT, or give it another label once nothing needs it", id.label())}
	case !may(cryptoki.CKA_ENCRYPT):
		return id, badKey{unwraps: true, what: fmt.Sprintf("version %s may not encrypt: set CKA_ENCRYPT", id.label())}
	case t.config.AllowExtractable:
		return id, nil
	case !may(cryptoki.CKA_PRIVATE):
		return id, badKey{unwraps: true, what: fmt.Sprintf("version %s is used without a PIN by whoever reaches the token (CKA_PRIVATE is false): say --allow-extractable, rotate, and delete it once nothing needs it", id.label())}
	case !may(cryptoki.CKA_SENSITIVE) || may(cryptoki.CKA_EXTRACTABLE):
		return id, badKey{unwraps: true, what: fmt.Sprintf("version %s can be read from the token (CKA_SENSITIVE is %t and CKA_EXTRACTABLE %t): set them to true and false and rotate, or say --allow-extractable", id.label(), may(cryptoki.CKA_SENSITIVE), may(cryptoki.CKA_EXTRACTABLE))}
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
