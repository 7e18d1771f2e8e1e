//go:build cgo

package pkcs11

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// readings are what was read of keys, by their handles. A token that is slow takes longer to tell
// of many keys than a look may take, and so a look goes on where the last one ended. One
// goroutine uses it.
type readings map[cryptoki.ObjectHandle]reading

// reading is what one key is.
type reading struct {
	id   keyID
	bad  error     // a badKey, if something is wrong with it
	sure bool      // it need not be read again at once
	at   time.Time // when it was read
}

// anew is how long a look reads keys that were read before: a handle may be another key's by
// now. A token that is quick tells of all of them in that time, and a slow one of some.
const anew = 300 * time.Millisecond

// update reads what is not known of these objects, all of it or as much as there is time for.
func (r readings) update(ctx context.Context, t *Token, d driver, h cryptoki.SessionHandle, objects []cryptoki.ObjectHandle) error {
	there := map[cryptoki.ObjectHandle]bool{}
	for _, object := range objects {
		there[object] = true
	}
	var before []cryptoki.ObjectHandle
	for object, known := range r {
		switch {
		case !there[object]:
			delete(r, object)
		case known.sure:
			before = append(before, object)
		}
	}
	for _, object := range objects {
		if r[object].sure {
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %s is slow to tell what its keys are: %d of %d are read, and the next look goes on: %w", kmsplugin.ErrUnavailable, t, len(r), len(objects), context.Cause(ctx))
		}
		if err := r.read(t, d, h, object); err != nil {
			return err
		}
	}
	slices.SortFunc(before, func(a, b cryptoki.ObjectHandle) int { return r[a].at.Compare(r[b].at) })
	began := t.config.Clock.Now()
	for _, object := range before {
		if ctx.Err() != nil || t.config.Clock.Since(began) >= anew {
			break
		}
		if err := r.read(t, d, h, object); err != nil {
			return err
		}
	}
	return nil
}

// read reads one. Half of a key, which SoftHSM may tell of while another process makes it, is no
// good one: what is wrong is believed when it was read twice.
func (r readings) read(t *Token, d driver, h cryptoki.SessionHandle, object cryptoki.ObjectHandle) error {
	id, err := t.examine(d, h, object)
	if isCode(err, cryptoki.CKR_OBJECT_HANDLE_INVALID) {
		delete(r, object) // was deleted meanwhile
		return nil
	}
	var bad badKey
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	last, known := r[object]
	same := known && last.id == id && fmt.Sprint(last.bad) == fmt.Sprint(err)
	r[object] = reading{id: id, bad: err, sure: err == nil || same, at: t.config.Clock.Now()}
	return nil
}
