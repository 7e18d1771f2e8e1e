package conformance

import (
	"context"
	"sync"
	"sync/atomic"
)

const (
	racers     = 8      // that call while the key is rotated
	denseCalls = 2000   // of each, one after the other; those that follow are paced
	mostCalls  = 20_000 // of each
	silent     = 25     // of each after a rotation, before anybody asks for Status
	lastCalls  = 25     // of each after the rotation has shown
	keptCalls  = 64     // of each key_id, at both ends of the race
)

// A race is what is called while the key is rotated. The racers share it.
type race struct {
	s *session
	// quiet is a race in which nobody asks for Status until the KMS has been rotated and
	// Encrypt was called after that.
	quiet         bool
	rotated, over atomic.Bool
	encrypted     sync.WaitGroup // until each racer has called Encrypt in silence
	ended         sync.WaitGroup

	mu    sync.Mutex
	kept  map[string]*ends // by key_id
	wrong error            // the first disagreement
	err   error            // the first call that failed
}

// ends are the first and the last of many.
type ends struct{ first, last []*sealed }

func (e *ends) add(w *sealed) {
	if len(e.first) < keptCalls {
		e.first = append(e.first, w)
		return
	}
	if e.last = append(e.last, w); len(e.last) > keptCalls {
		e.last = e.last[1:]
	}
}

func (s *session) startRace(ctx context.Context, quiet bool) *race {
	r := &race{s: s, quiet: quiet, kept: map[string]*ends{}}
	for range racers {
		r.encrypted.Add(1)
		r.ended.Go(func() { r.run(ctx) })
	}
	return r
}

// run is one racer: a bounded number of calls, in a row and then paced, and some more
// when the race is over.
func (r *race) run(ctx context.Context) {
	silence := sync.OnceFunc(r.encrypted.Done)
	defer silence()
	alone, left := 0, lastCalls
	for n := 0; n < mostCalls && left > 0; n++ {
		if r.over.Load() {
			left--
		}
		if n > denseCalls && r.s.wait(ctx, r.s.Interval/6000) != nil {
			return
		}
		call := r.agreeing
		if r.quiet && alone < silent {
			call = r.encrypting
		}
		if r.rotated.Load() {
			if alone++; alone >= silent {
				silence()
			}
		}
		if !call(ctx) {
			return
		}
	}
}

// encrypting is a call of Encrypt alone.
func (r *race) encrypting(ctx context.Context) bool {
	w, err := r.s.wrap(ctx)
	return r.note(w, nil, err)
}

// agreeing is a call of Encrypt between two of Status.
func (r *race) agreeing(ctx context.Context) bool {
	before, err := r.s.keyID(ctx)
	if err != nil {
		return r.note(nil, nil, err)
	}
	w, err := r.s.wrap(ctx)
	if err != nil {
		return r.note(nil, nil, err)
	}
	after, err := r.s.keyID(ctx)
	return r.note(w, disagreement(before, w.KeyId, after), err)
}

func (r *race) note(w *sealed, wrong, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return false
	}
	if wrong != nil && r.wrong == nil {
		r.wrong = wrong
	}
	if r.kept[w.KeyId] == nil {
		r.kept[w.KeyId] = &ends{}
	}
	r.kept[w.KeyId].add(w)
	return true
}
