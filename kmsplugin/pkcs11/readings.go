//go:build cgo

package pkcs11

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	cryptoki "github.com/miekg/pkcs11"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// readings are what was read of keys, by their handles. A token that is slow takes longer to tell
// of many keys than a look may take: the next look reads first what this one did not, and what was
// read before unwraps meanwhile. One goroutine uses it.
type readings map[cryptoki.ObjectHandle]reading

// reading is what one key is.
type reading struct {
	id    keyID
	bad   error     // a badKey, if something is wrong with it
	sure  bool      // it need not be read twice
	fresh bool      // it was read in this look: a handle may be another key's by the next
	at    time.Time // when it was read
}

// lookFor is how long a look reads, and less than a call of the kit takes: it has to find them, too.
const lookFor = 1800 * time.Millisecond

// age has all be read anew.
func (r readings) age() {
	for object, known := range r {
		known.fresh = false
		r[object] = known
	}
}

// update reads these objects, but for what is fresh and sure. What there was no time for is slow.
func (r readings) update(ctx context.Context, t *Token, d driver, h cryptoki.SessionHandle, objects []cryptoki.ObjectHandle) (slow, err error) {
	maps.DeleteFunc(r, func(object cryptoki.ObjectHandle, _ reading) bool { return !slices.Contains(objects, object) })
	var left []cryptoki.ObjectHandle
	for _, object := range objects {
		if !r[object].sure || !r[object].fresh {
			left = append(left, object)
		}
	}
	slices.SortStableFunc(left, func(a, b cryptoki.ObjectHandle) int { return r[a].at.Compare(r[b].at) })
	began := t.config.Clock.Now()
	for n, object := range left {
		if ctx.Err() != nil || t.config.Clock.Now().Sub(began) >= lookFor {
			slow := fmt.Errorf("%w: %s is slow to tell what its keys are: %d of %d were read in this look, and a new one may be among the others: destroy versions that nothing needs", kmsplugin.ErrUnavailable, t, len(objects)-len(left)+n, len(objects))
			if len(objects)-len(left)+n == 0 { // it told nothing at all
				return nil, slow
			}
			return slow, nil
		}
		if err := r.read(t, d, h, object); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// read reads one. Half of a key, which SoftHSM may tell of while another process makes it, is no
// good one: what is wrong is believed when it was read twice.
func (r readings) read(t *Token, d driver, h cryptoki.SessionHandle, object cryptoki.ObjectHandle) error {
	id, err := t.examine(d, h, object)
	var bad badKey
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	last, known := r[object]
	same := known && last.id == id && fmt.Sprint(last.bad) == fmt.Sprint(err)
	r[object] = reading{id: id, bad: err, sure: err == nil || same, fresh: true, at: t.config.Clock.Now()}
	return nil
}
