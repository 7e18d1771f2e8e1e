//go:build cgo

package pkcs11

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A line is a way to the token: a session, in the sense of PKCS#11, which may be exchanged for
// another one, and what was found in that. Each may be with another HSM of a cluster, which numbers
// its objects itself, so that a handle that was found over one line is another key over the next. It
// has one owner at a time, as a session does one thing at once.
type line struct {
	driver driver
	handle cryptoki.SessionHandle
	// known is what was read of the objects.
	known map[object]reading
	// listed is how many objects there were when all were listed last.
	listed int
	// last is what the last look over it found.
	last string
	// slow is that the last look over it had no time for all keys. Others are asked first.
	slow bool
	// steps counts the calls that have returned. It may be read by others.
	steps atomic.Int64
}

// An object is used over the line that found it, and over no other.
type object struct {
	*line
	number cryptoki.ObjectHandle
}

func newLine(d driver, h cryptoki.SessionHandle) *line {
	return &line{driver: d, handle: h, known: map[object]reading{}}
}

// forget is for a session that is another one, or is away.
func (l *line) forget() {
	clear(l.known)
	l.last, l.slow = "", false
}

func (l *line) find(template []*cryptoki.Attribute) ([]object, error) {
	handles, err := l.driver.find(l.handle, template)
	l.steps.Add(1)
	var all []object
	for _, h := range handles {
		all = append(all, object{l, h})
	}
	return all, err
}

// has reports whether it is known that a key is there.
func (l *line) has(id keyID) bool {
	for _, known := range l.known {
		if known.id == id {
			return true
		}
	}
	return false
}

// errHasNot is that a key is not where this line leads, which says nothing of others.
var errHasNot = fmt.Errorf("%w: the key is not there, or another one by now", kmsplugin.ErrUnavailable)

// key is a key, which may be there more than once, as it is known or, anew, as the token tells it now.
func (l *line) key(t *Token, id keyID, anew bool) (all []object, err error) {
	if !anew && l.has(id) {
		for o, known := range l.known {
			if known.id == id && known.unwraps() {
				all = append(all, o)
			}
		}
	} else {
		maps.DeleteFunc(l.known, func(_ object, known reading) bool { return known.id == id })
		if all, err = l.find(append(t.keys(), cryptoki.NewAttribute(cryptoki.CKA_ID, id[:]))); err != nil {
			return nil, err
		}
		for _, o := range all {
			l.known[o] = reading{id: id} // the next look reads the rest
		}
	}
	if len(all) == 0 {
		return nil, errHasNot
	}
	return all, nil
}

// attributes reads some.
func (o object) attributes(types ...uint) (map[uint][]byte, error) {
	template := make([]*cryptoki.Attribute, len(types))
	for i, one := range types {
		template[i] = cryptoki.NewAttribute(one, nil)
	}
	found, err := o.driver.GetAttributeValue(o.handle, o.number, template)
	o.steps.Add(1)
	if err != nil {
		return nil, err
	}
	all := map[uint][]byte{}
	for _, a := range found {
		all[a.Type] = a.Value
	}
	return all, nil
}

// is reads from the token which key this is now: a module may give the handle of a key that was
// deleted to another.
func (o object) is(t *Token, id keyID) error {
	a, err := o.attributes(cryptoki.CKA_ID, cryptoki.CKA_LABEL)
	if err == nil && (!bytes.Equal(a[cryptoki.CKA_ID], id[:]) || string(a[cryptoki.CKA_LABEL]) != t.config.Key) {
		err = errHasNot
	}
	return err
}

// seal has the token encrypt with an IV that is drawn here, or with its own: some tokens, those
// of FIPS 140 among them, take none, and write the one that they drew where the zeros are
// that they want to be given.
func (o object) seal(aad, dek []byte) ([]byte, error) {
	iv := make([]byte, ivSize)
	_, _ = rand.Read(iv) // which ends the process rather than fail
	ct, used, err := o.driver.seal(o.handle, o.number, slices.Clone(iv), aad, dek)
	if isCode(err, cryptoki.CKR_MECHANISM_PARAM_INVALID, cryptoki.CKR_ARGUMENTS_BAD) {
		ct, used, err = o.driver.seal(o.handle, o.number, make([]byte, ivSize), aad, dek)
	}
	o.steps.Add(1)
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

// open is the way back.
func (o object) open(ciphertext, aad []byte) ([]byte, error) {
	dek, err := o.driver.open(o.handle, o.number, ciphertext[1:1+ivSize], aad, ciphertext[1+ivSize:])
	o.steps.Add(1)
	return dek, err
}

// isLoggedIn is an error of who is not.
func (l *line) isLoggedIn() error {
	state, err := l.driver.GetSessionInfo(l.handle)
	l.steps.Add(1)
	if err != nil {
		return fmt.Errorf("%w: C_GetSessionInfo: %w", errAway, err)
	}
	if !isUsers(state.State) {
		return fmt.Errorf("%w: nobody is logged in", errAway)
	}
	return nil
}

// mayBeOld reports whether what failed may be so as a handle is another key's by now.
func mayBeOld(err error) bool {
	return !isAway(err) && (saysNothing(err) || isOfKey(err) || errors.Is(err, errHasNot))
}
