//go:build cgo

package pkcs11

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// reading is what one key is. A token that is slow takes longer to tell of many keys than a look may
// take: the next look reads first what this one did not, and what was read before unwraps meanwhile.
type reading struct {
	id    keyID
	bad   error     // a badKey, if something is wrong with it
	sure  bool      // it need not be read twice
	fresh bool      // it was read in this look: a handle may be another key's by the next
	at    time.Time // when it was read
}

// unwraps reports whether it does, whatever is wrong with it.
func (r reading) unwraps() bool {
	var bad badKey
	return !errors.As(r.bad, &bad) || bad.unwraps
}

// lookFor is how long a look reads, and less than a call of the kit takes: it has to find them, too.
const lookFor = 1800 * time.Millisecond

// age has all be read anew.
func (l *line) age() {
	for o, known := range l.known {
		known.fresh = false
		l.known[o] = known
	}
}

// hasUnread reports whether there are objects of which nothing is known yet.
func (l *line) hasUnread() bool {
	return l.listed > len(l.known)
}

// keep forgets all objects but these.
func (l *line) keep(objects []object) {
	maps.DeleteFunc(l.known, func(o object, _ reading) bool { return !slices.Contains(objects, o) })
}

// readAll reads all keys of the label, but for what is fresh and sure. What there was no time for is
// slow; the error is that they cannot be read.
func (l *line) readAll(ctx context.Context, t *Token) (found finding, slow, err error) {
	objects, err := l.find(t.keys())
	if err != nil {
		return finding{}, nil, err
	}
	l.keep(objects)
	l.listed = len(objects)
	var left []object
	for _, o := range objects {
		if !l.known[o].sure || !l.known[o].fresh {
			left = append(left, o)
		}
	}
	slices.SortStableFunc(left, func(a, b object) int { return l.known[a].at.Compare(l.known[b].at) })
	began := t.config.Clock.Now()
	for n, o := range left {
		if ctx.Err() != nil || t.config.Clock.Now().Sub(began) >= lookFor {
			read := len(objects) - len(left) + n
			slow = fmt.Errorf("%w: %s is slow to tell what its keys are: %d of %d were read in this look, and a new one may be among the others: destroy versions that nothing needs", kmsplugin.ErrUnavailable, t, read, len(objects))
			if read == 0 { // it told nothing at all
				return finding{}, nil, slow
			}
			break
		}
		if err := o.read(t); err != nil {
			return finding{}, nil, err
		}
	}
	return l.found(true), slow, nil
}

// readNew reads what keys there are, and which they are as far as that is not known; also of those
// that others do not have, which may be other keys by now. The rest may be that, too, and is read if
// it is to read all: if not, the finding is stale. What is wrong counts once it was read twice.
func (l *line) readNew(ctx context.Context, t *Token, others finding, all bool) (finding, error) {
	objects, err := l.find(t.keys())
	if err != nil {
		return finding{}, err
	}
	l.keep(objects)
	var unknown, known []object
	for _, o := range objects {
		if is := l.known[o]; is.sure && is.bad == nil && others.keys[is.id] > 0 {
			known = append(known, o)
		} else {
			unknown = append(unknown, o)
		}
	}
	partial, stale := false, false
	for i, o := range append(unknown, known...) {
		isNew := i < len(unknown)
		twice := !isNew && l.hasTwice(l.known[o].id)
		if ctx.Err() != nil || !isNew && !all && !twice {
			partial, stale = partial || isNew, true
			if twice { // one of the two may be another key by now
				delete(l.known, o)
			}
			continue
		}
		if err := o.read(t); err != nil {
			return finding{}, err
		}
		partial = partial || !l.known[o].sure
	}
	found := l.found(false)
	found.partial, found.stale = partial, stale
	if found.lacks(others) { // as it is to who is not logged in there
		return found, l.isLoggedIn()
	}
	return found, nil
}

// hasTwice reports whether it is known of two objects that they are one key.
func (l *line) hasTwice(id keyID) bool {
	n := 0
	for _, known := range l.known {
		if known.id == id {
			n++
		}
	}
	return n > 1
}

// read reads one. Half of a key, which SoftHSM may tell of while another process makes it, is no
// good one: what is wrong is believed when it was read twice.
func (o object) read(t *Token) error {
	id, err := o.examine(t)
	var bad badKey
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	last, known := o.known[o]
	same := known && last.id == id && fmt.Sprint(last.bad) == fmt.Sprint(err)
	o.known[o] = reading{id: id, bad: err, sure: err == nil || same, fresh: true, at: t.config.Clock.Now()}
	return nil
}

// lookTwice reads them until they are the same twice: while another process makes a key SoftHSM
// does not find what is there.
func (l *line) lookTwice(ctx context.Context, t *Token) (found *ring, err error) {
	last := ""
	for n := range atMost {
		all, slow, failed := l.readAll(ctx, t)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if found, err = t.ring(all), failed; slow != nil {
			found.problem = slow
		}
		is := fmt.Sprint(all, slow, err)
		if is == last || !t.rests(ctx, pause<<n) {
			break
		}
		last = is
	}
	return found, err
}
