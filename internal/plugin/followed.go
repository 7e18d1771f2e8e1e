package plugin

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Config is what a [Followed] works with.
type Config struct {
	Clock clock.Clock
	// Healthy and Unhealthy are the times between two questions, after an answer
	// without and with something wrong.
	Healthy, Unhealthy time.Duration
	// Window is the write window; 0 where there is none.
	Window time.Duration
	// OnlyWriters are polled while nothing is wrong, as of KMS v1, which has no
	// Status to ask a plugin for that is only read with.
	OnlyWriters bool
	// Wake says that it is worth asking before the next poll. It may be nil.
	Wake <-chan struct{}
	// Ask asks the plugin how it is, for the role that it is given, and learns
	// what it can. It is called by one goroutine. What fails because ctx ended
	// says nothing of the plugin.
	Ask func(ctx context.Context, role Role)
	// Changed is told when the plugin's condition has become another, and once a
	// minute at most when the same problem reads differently.
	Changed func()
	// Close closes the plugin.
	Close func()
}

// Followed is a plugin in use, of either version of the KMS API: who holds it
// open, what it is used for, what is known of it, and the one goroutine that
// asks it how it is for as long as it is held. Safe for concurrent use.
type Followed struct {
	Knowledge
	config Config
	uses   atomic.Uint64 // how often the role changed, and in the last two bits what it is
	follower
	holds
	told told
}

// Follow takes a plugin into care. Nobody asks it anything before it has a role.
// The goroutine ends when the last hold does.
func Follow(c Config) *Followed {
	f := &Followed{config: c}
	f.Knowledge.now.Store(&Known{Began: c.Clock.Now()})
	f.follower.start(f)
	f.holds.close = func() {
		f.follower.end()
		f.holds.calls.Wait()
		c.Close()
	}
	return f
}

// Role is what the plugin is used for.
func (f *Followed) Role() Role { return roleOf(f.uses.Load()) }

func roleOf(uses uint64) Role { return Role(uses & 3) }

// SetRole says what the plugin is used for from now on. What is known of it
// stays known.
func (f *Followed) SetRole(r Role) {
	for {
		before := f.uses.Load()
		if roleOf(before) == r {
			return
		}
		if f.uses.CompareAndSwap(before, before&^3+4|uint64(r)) {
			signal(f.follower.turns)
			return
		}
	}
}

// Condition is how the plugin is now for its role.
func (f *Followed) Condition() Condition { return f.ConditionFor(f.Role()) }

// ConditionFor is the same for another role.
func (f *Followed) ConditionFor(r Role) Condition {
	if f.isClosed() {
		return Condition{Troublef(Closed, "the plugin is no longer used: %w", ErrClosed), f.config.Clock.Now()}
	}
	return f.Load().Condition(r, f.config.Window, f.config.Clock.Now())
}

// Suspect notes that a value under keyID came to t, which may be the plugin's doing:
// it is tried soon. A KEK that is not the plugin's present one says nothing.
func (f *Followed) Suspect(keyID string, t *Trouble) {
	now := f.config.Clock.Now()
	if isOther(keyID, f.Load().KeyID) {
		return
	}
	f.Learn(func(k Known) Known { return k.AfterUnwrap(t, now, now) })
	f.Look()
}

// Fresh reports whether the plugin was asked how it is within the last second: to
// ask again would bring nothing.
func (f *Followed) Fresh() bool {
	k := f.Load()
	last := later(later(k.Status.WellAt, k.Status.FailedAt), later(k.Encrypt.WellAt, k.Encrypt.FailedAt))
	return !last.IsZero() && f.config.Clock.Since(last) < askEvery
}

// due is when the plugin is to be asked next, if it was last asked at last; ok is
// false when nobody needs to know. One that is to be written with is asked at once
// when its use has changed: see [Followed.Asked].
func (f *Followed) due(last time.Time) (at time.Time, ok bool) {
	role, known, now := f.Role(), f.Load(), f.config.Clock.Now()
	c := known.Condition(role, f.config.Window, now)
	onTrouble := f.config.OnlyWriters && role == Reads
	switch settles, isNew := known.settles(role, now); {
	case role == Idle, onTrouble && c.Trouble == nil && !isNew:
		return time.Time{}, false
	case last.IsZero() && !onTrouble, role == Writes && f.follower.asked.Load() != f.uses.Load():
		return now, true
	case isNew:
		return settles, true
	case c.Trouble != nil:
		if onTrouble {
			last = later(last, c.Since)
		}
		return last.Add(f.config.Unhealthy), true
	}
	return last.Add(f.config.Healthy), true
}

// settles is when a trouble that does not count yet begins to, if there is one.
func (k *Known) settles(role Role, now time.Time) (at time.Time, isNew bool) {
	for _, r := range k.neededFor(role) {
		if r.Trouble != nil && r.isNew(now) {
			return r.Since.Add(Grace), true
		}
	}
	return time.Time{}, false
}

// told is what was last told of a plugin. It is for the follower's goroutine.
type told struct {
	*Trouble
	at time.Time
}

// tellEvery is how often the same problem is told in other words.
const tellEvery = time.Minute

// tell tells of the plugin's condition, if that is news, and reports whether
// its class is another.
func (f *Followed) tell() (news bool) {
	if f.Role() == Idle {
		return false
	}
	now, c := f.config.Clock.Now(), f.Condition()
	news = c.class() != f.told.class()
	reads := c.text() != f.told.text() && now.Sub(f.told.at) >= tellEvery
	if news || reads {
		f.told = told{c.Trouble, now}
		f.config.Changed()
	}
	return news
}

// holds counts who holds a plugin open, and the calls to it under way. It is
// closed when nobody has it any longer and the last call has ended.
type holds struct {
	mu     sync.Mutex
	n      int
	closed bool
	calls  sync.WaitGroup
	close  func()
}

// Hold keeps the plugin open until end is called. The last one to end closes it:
// that waits for calls under way, which their timeout bounds. Ending twice is
// harmless.
func (h *holds) Hold() (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n++
	return sync.OnceFunc(h.release)
}

func (h *holds) release() {
	h.mu.Lock()
	h.n--
	last := h.n == 0 && !h.closed
	h.closed = h.closed || last
	h.mu.Unlock()
	if last {
		h.close()
	}
}

func (h *holds) isClosed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// Begin keeps the plugin open for a call until [Followed.Done]; false if it is
// closed.
func (h *holds) Begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.calls.Add(1)
	return true
}

// Done ends a call that was begun.
func (h *holds) Done() { h.calls.Done() }
