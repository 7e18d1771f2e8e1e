//go:build cgo

package pkcs11

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// A module may lose its device, and go on telling what it knows by heart: slots, sessions, that
// somebody is logged in, even keys. So what it says of itself decides nothing. There is one rule,
// here and in [session.doubt], and the answer of the module only says how soon it applies.
//
//	trusted <-- a look is read whole -- opened <------ C_Initialize <---.
//	   |                                   |                            | before a session is opened:
//	   `-----------> doubted <-------------'                            | at once, then after pauses
//	                    `-----------------------------------------------'
//
// It is doubted, and its session ended, after three looks in a row that were not read whole,
// whatever the reason: an error, no end, or no key at all, as who is not logged in finds. One
// answer that the token is away, and a session that cannot be opened, are enough. That one is
// opened is no proof.
//
// It is the same with wraps where looks are well. But what unwraps then is lost for a moment, for
// what may be no use: the pauses are longer.
//
// A module in which calls run cannot be initialised. That is told until it can.
type trust struct {
	mu     sync.Mutex
	doubts [2]doubt
	stuck  bool // calls run in it
	waits  int  // for them
}

// defect is what a module does not do.
type defect int

const (
	blind defect = iota // no look is read whole
	lame                // looks are, and nothing is wrapped
)

// pauses are the shortest and the longest between two times that the module is initialised.
var pauses = [...]struct{ shortest, longest time.Duration }{
	blind: {time.Second, time.Minute},
	lame:  {time.Minute, 15 * time.Minute},
}

// longer is the pause after another one.
func (k defect) longer(pause time.Duration) time.Duration {
	return min(max(2*pause, pauses[k].shortest), pauses[k].longest)
}

type doubt struct {
	stands bool
	next   time.Time // when the module may be initialised for it
	pause  time.Duration
}

// silences is how often in a row a module may fail before it is doubted.
const silences = 3

func (t *trust) doubt(k defect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubts[k].stands = true
}

// prove is for a module that does it.
func (t *trust) prove(k defect) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.doubts[k] = doubt{}
}

// mayHelp reports whether the pause is over.
func (t *trust) mayHelp(k defect, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !now.Before(t.doubts[k].next)
}

// again reports whether the module is to be initialised again now.
func (t *trust) again(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doubts[blind].isDue(now) || t.doubts[lame].isDue(now)
}

func (d doubt) isDue(now time.Time) bool { return d.stands && !now.Before(d.next) }

// initialised is told how that went, and tells whether the module is used as it is: a call that
// hangs may be the only one that does. One that runs is waited for, as no other begins meanwhile.
func (t *trust) initialised(err error, now time.Time) (asItIs bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case errors.Is(err, errInUse):
		return true
	case errors.Is(err, errStuck):
		t.stuck = true
		t.waits = (t.waits + 1) % silences
		return t.waits == 0
	}
	t.stuck, t.waits = false, 0
	for k := range t.doubts {
		if d := &t.doubts[k]; d.isDue(now) {
			d.pause = defect(k).longer(d.pause)
			d.next = now.Add(d.pause)
		}
		t.doubts[k].stands = t.doubts[k].stands && err != nil
	}
	return false
}

// tell adds to an error that the module could not be initialised again, while it should be.
func (t *trust) tell(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || !t.stuck || errors.Is(err, errStuck) || !t.doubts[blind].stands && !t.doubts[lame].stands {
		return err
	}
	return fmt.Errorf("%w; and %w", err, errStuck)
}

// looked is for each look that the kit asked for.
func (s *session) looked(found *ring, err error) {
	if err != nil || errors.Is(found.problem, ErrNoKey) {
		s.doubt(blind, s.looks.Add(1), err)
		return
	}
	s.looks.Store(0)
	s.token.trust.prove(blind)
}

// wrapped is for each wrap. A session that unwraps meanwhile is not ended.
func (s *session) wrapped(err error) {
	switch {
	case err == nil:
		s.wraps.Store(0)
		s.token.trust.prove(lame)
	case isAway(err):
		s.doubt(lame, silences, err)
	case hasCode(err):
		s.doubt(lame, s.wraps.Add(1), err)
	}
}

// unwrapped is for each unwrap. An answer that says nothing may be the ciphertext's.
func (s *session) unwrapped(err error) {
	switch {
	case err == nil:
		s.wraps.Store(0)
	case isAway(err):
		s.doubt(lame, silences, err)
	}
}

// doubt is the rule: it ends the session, and has the module initialised before the next one, if
// it failed so often in a row and that may help, or if an answer said that the token is away.
func (s *session) doubt(k defect, inARow int32, err error) {
	if !isAway(err) && (inARow < silences || !s.token.trust.mayHelp(k, s.token.config.Clock.Now())) {
		return
	}
	if !errors.Is(err, errOver) { // which says nothing of the module as it is now
		s.token.trust.doubt(k)
	}
	s.end()
}
