package plugin

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ErrClosed says that a plugin is no longer followed.
var ErrClosed = errors.New("provider is closed")

// follower is the goroutine that asks a plugin how it is: at its polls, when it
// is woken, and when somebody wants to know. Its channels lead to it; what
// stands below them is of that goroutine alone.
type follower struct {
	of    *Followed
	turns chan struct{} // what it is used for changed
	woken chan struct{} // a call failed
	asks  chan chan struct{}
	jobs  chan job
	stop  context.CancelFunc
	done  chan struct{}

	// asked is the use of the plugin as of which it was asked. See
	// [Followed.Asked].
	asked atomic.Uint64
	after atomic.Pointer[chan struct{}] // closed when asked has grown

	pace    pace
	breaks  wakes     // of the connection
	failure wakes     // of calls
	last    time.Time // when it was last asked; zero if never
	as      Role      // what it was last asked as
}

// job is something to do that no question may come between.
type job struct {
	do   func(context.Context)
	done chan struct{}
}

func (f *follower) start(of *Followed) {
	ctx, stop := context.WithCancel(context.Background())
	*f = follower{
		of: of, turns: make(chan struct{}, 1), woken: make(chan struct{}, 1), asks: make(chan chan struct{}), jobs: make(chan job),
		stop: stop, done: make(chan struct{}),
	}
	first := make(chan struct{})
	f.after.Store(&first)
	go f.run(ctx)
}

func (f *follower) end() {
	f.stop()
	<-f.done
}

// Look has the plugin asked soon, because a call to it failed.
func (f *follower) Look() { signal(f.woken) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	for {
		why := f.pause(ctx)
		if ctx.Err() != nil {
			return
		}
		f.ask(ctx, why)
		if ctx.Err() != nil {
			return // what was begun may not have been done
		}
		for _, waiting := range why.waiting {
			close(waiting)
		}
	}
}

// ask asks the plugin once.
func (f *follower) ask(ctx context.Context, why reason) {
	uses, before := f.of.uses.Load(), f.of.Load()
	role := roleOf(uses)
	f.of.config.Ask(ctx, role)
	if ctx.Err() != nil {
		return
	}
	news := f.of.tell() || f.of.Load().isNewsAfter(before)
	f.last, f.as = f.of.config.Clock.Now(), role
	f.asked.Store(uses)
	poll := f.of.config.Healthy
	if due, ok := f.of.due(f.last); ok {
		poll = due.Sub(f.last)
	}
	f.pace.asked(f.last)
	for _, w := range []*wakes{&f.breaks, &f.failure} {
		if slices.Contains(why.woken, w) {
			w.brought(f.last, news, f.quietest(w, poll))
		} else if news {
			w.quiet = 0
		}
	}
	next := make(chan struct{})
	close(*f.after.Swap(&next))
}

// do does a job, and tells what came of it, unless it was ended.
func (f *follower) do(ctx context.Context, j job) {
	j.do(ctx)
	if ctx.Err() == nil {
		f.of.tell()
		close(j.done)
	}
}

// wakeIf takes in that a call has failed, if one has: no row of jobs may keep that
// from being heard.
func (f *follower) wakeIf(a *alarms, why *reason) {
	select {
	case <-f.woken:
		f.wake(a, why, &f.failure)
	default:
	}
}

// quietest is how seldom wakes that bring no news are heard, given the time to the
// next poll: failures of calls as often as one polls a plugin that is ill.
func (f *follower) quietest(w *wakes, poll time.Duration) time.Duration {
	if w == &f.failure {
		return min(poll, f.of.config.Unhealthy)
	}
	return poll
}

// reason is why the plugin is asked: it was woken, somebody waits, or else the
// time has come.
type reason struct {
	woken   []*wakes
	waiting []chan struct{}
}

// pause waits until the plugin is to be asked, and does jobs meanwhile.
func (f *follower) pause(ctx context.Context) (why reason) {
	a := alarms{clock: f.of.config.Clock}
	defer a.stop()
	for a.set(f.of.due(f.last)); !a.rung; {
		select {
		case <-ctx.Done():
			return why
		case <-a.poll.C():
			return why
		case <-a.late.C():
			return why
		case <-f.turns:
			a.set(f.of.due(f.last))
		case j := <-f.jobs:
			f.do(ctx, j)
			a.set(f.of.due(f.last))
			f.wakeIf(&a, &why)
		case waiting := <-f.asks:
			if f.heard(waiting, &why) {
				return why
			}
		case <-f.of.config.Wake:
			now := f.of.config.Clock.Now()
			f.of.Learn(func(k Known) Known { k.WokenAt = now; return k })
			f.wake(&a, &why, &f.breaks)
		case <-f.woken:
			f.wake(&a, &why, &f.failure)
		}
	}
	return why
}

// heard takes in that somebody wants the plugin asked, and reports whether it
// may be. If it was asked a moment ago, what is known has to do.
func (f *follower) heard(waiting chan struct{}, why *reason) bool {
	now := f.of.config.Clock.Now()
	if f.pace.earliest(now).After(now) || f.of.Fresh() && f.as == f.of.Role() {
		close(waiting)
		return false
	}
	why.waiting = append(why.waiting, waiting)
	return true
}

// wake takes in that it is worth asking, now or when that may be.
func (f *follower) wake(a *alarms, why *reason, by *wakes) {
	if f.of.Role() != Idle {
		if !slices.Contains(why.woken, by) {
			why.woken = append(why.woken, by)
		}
		a.setLate(f.pace.earliest(by.earliest(f.of.config.Clock.Now())))
	}
}

// alarms are those that end a pause. A time that has come rings at once.
type alarms struct {
	clock      clock.Clock
	poll, late alarm
	lateAt     time.Time
	rung       bool
}

// alarm is a timer that may not be set; then it never rings.
type alarm struct{ timer clock.Timer }

func (a alarm) C() <-chan time.Time {
	if a.timer == nil {
		return nil
	}
	return a.timer.C()
}

func (a alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// set sets when to ask in turn; not ok is never.
func (a *alarms) set(at time.Time, ok bool) {
	a.poll.stop()
	a.poll = alarm{}
	if ok {
		a.poll = a.ringAt(at)
	}
}

// setLate sets when a wake may be heard, if none is to be heard before.
func (a *alarms) setLate(at time.Time) {
	if a.late.timer == nil || at.Before(a.lateAt) {
		a.late.stop()
		a.late, a.lateAt = a.ringAt(at), at
	}
}

func (a *alarms) ringAt(at time.Time) alarm {
	wait := at.Sub(a.clock.Now())
	if wait <= 0 {
		a.rung = true
		return alarm{}
	}
	return alarm{a.clock.NewTimer(wait)}
}

func (a *alarms) stop() {
	a.poll.stop()
	a.late.stop()
}

// Ask has the plugin asked now and waits for what comes of it, which is then
// known. If it was asked a moment ago, what is known already has to do. It fails
// when ctx ends, and with [ErrClosed].
func (f *follower) Ask(ctx context.Context) error {
	answered := make(chan struct{})
	select {
	case f.asks <- answered:
	case <-f.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return f.wait(ctx, answered)
}

// Asked waits until the plugin was asked as what it is used for now, whatever
// came of it. It fails when ctx ends, and with [ErrClosed].
func (f *follower) Asked(ctx context.Context) error {
	uses := f.of.uses.Load()
	for {
		after := *f.after.Load()
		select {
		case <-f.done:
			return ErrClosed
		default:
		}
		if f.asked.Load()>>2 >= uses>>2 {
			return nil
		}
		if err := f.wait(ctx, after); err != nil {
			return err
		}
	}
}

// Do does something in between two questions. It fails when ctx ends before it
// is done, though it may be done then, and with [ErrClosed].
func (f *follower) Do(ctx context.Context, do func(context.Context)) error {
	j := job{do: do, done: make(chan struct{})}
	select {
	case f.jobs <- j:
	case <-f.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return f.wait(ctx, j.done)
}

func (f *follower) wait(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-f.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
