package conformance

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	racers     = 8    // that call while the key is rotated
	denseCalls = 2000 // of each, one after the other; those that follow are paced
	firstCalls = 5    // of each before the rotation
	silent     = 25   // of each after a rotation, before anybody asks for Status
	lastCalls  = 25   // of each after the rotation has shown
	keptCalls  = 32   // of each key_id, at both ends of the race
	keptIDs    = 64   // key_ids
)

// A race is what is called while the key is rotated. The racers share it.
type race struct {
	s      *session
	before string // the key_id until then
	// quiet is a race in which nobody asks for Status until the KMS has been rotated and
	// Encrypt was called after that.
	quiet         bool
	rotated, over atomic.Bool
	sent          chan struct{}  // a request of Encrypt has just been sent
	running       sync.WaitGroup // until each racer runs
	encrypted     sync.WaitGroup // until each has called Encrypt in silence
	ended         sync.WaitGroup

	mu    sync.Mutex
	calls int              // of Encrypt
	later int              // of them, those that began after the rotation
	back  bool             // Status named another key_id than before, and then that again
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

func (s *session) startRace(ctx context.Context, before string, quiet bool) *race {
	r := &race{s: s, before: before, quiet: quiet, sent: make(chan struct{}, 1), kept: map[string]*ends{}}
	for range racers {
		r.running.Add(1)
		r.encrypted.Add(1)
		r.ended.Go(func() { r.run(ctx) })
	}
	r.running.Wait()
	return r
}

// run is one racer: calls in a row, and then paced, for as long as the race takes, and some
// more when it is over.
func (r *race) run(ctx context.Context) {
	running, silence := sync.OnceFunc(r.running.Done), sync.OnceFunc(r.encrypted.Done)
	defer running()
	defer silence()
	alone, left, shown := 0, lastCalls, false
	for n := 0; left > 0; n++ {
		if r.over.Load() {
			left--
		}
		if n == firstCalls {
			running()
		}
		if n > denseCalls && r.s.wait(ctx, r.s.Interval/6000) != nil {
			return
		}
		call := func(ctx context.Context, rotated bool) bool { return r.agreeing(ctx, rotated, &shown) }
		if r.quiet && alone < silent {
			call = r.encrypting
		}
		rotated := r.rotated.Load()
		if rotated {
			if alone++; alone >= silent {
				silence()
			}
		}
		if !call(ctx, rotated) {
			return
		}
	}
}

// midway returns when a call of Encrypt is under way, and some time after it began: racers
// that keep step would else all be asking for Status at each rotation.
func (r *race) midway(ctx context.Context, after time.Duration) error {
	select { // one of long ago
	case <-r.sent:
	default:
	}
	giveUp := time.NewTimer(r.s.patience())
	defer giveUp.Stop()
	select {
	case <-r.sent:
	case <-giveUp.C: // the racers have ended, and will say why
	case <-ctx.Done():
	}
	moment := time.NewTimer(after)
	defer moment.Stop()
	<-moment.C
	return ctx.Err()
}

func (r *race) wrap(ctx context.Context) (*sealed, error) {
	return r.s.wrap(whenSent(ctx, func() {
		select {
		case r.sent <- struct{}{}:
		default:
		}
	}))
}

// encrypting is a call of Encrypt alone.
func (r *race) encrypting(ctx context.Context, rotated bool) bool {
	w, err := r.wrap(ctx)
	return r.note(w, rotated, nil, err)
}

// agreeing is a call of Encrypt between two of Status. That the rotation has shown is noted, and
// that it does not any more.
func (r *race) agreeing(ctx context.Context, rotated bool, shown *bool) bool {
	before, err := r.s.keyID(ctx)
	if err != nil {
		return r.note(nil, rotated, nil, err)
	}
	w, err := r.wrap(ctx)
	if err != nil {
		return r.note(nil, rotated, nil, err)
	}
	after, err := r.s.keyID(ctx)
	if err == nil {
		r.watch(shown, before, after)
	}
	return r.note(w, rotated, disagreement(before, w.KeyId, after), err)
}

// watch looks at what Status named to one racer, one after the other.
func (r *race) watch(shown *bool, named ...string) {
	for _, keyID := range named {
		if *shown && keyID == r.before {
			r.mu.Lock()
			r.back = true
			r.mu.Unlock()
		}
		*shown = *shown || keyID != r.before
	}
}

// hasMade reports whether there were so many calls of Encrypt, or one failed, and there are no more.
func (r *race) hasMade(calls int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls >= calls || r.err != nil
}

// note is false if a call failed.
func (r *race) note(w *sealed, rotated bool, wrong, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return false
	}
	if r.calls++; rotated {
		r.later++
	}
	if wrong != nil && r.wrong == nil {
		r.wrong = wrong
	}
	if r.kept[w.KeyId] == nil {
		if len(r.kept) == keptIDs {
			return true // so many are wrong whatever is kept
		}
		r.kept[w.KeyId] = &ends{}
	}
	r.kept[w.KeyId].add(w)
	return true
}
