package plugin

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"
)

// ErrClosed says that a plugin is not followed any more.
var ErrClosed = errors.New("provider is closed")

// Polls are when a plugin is asked how it is.
type Polls struct {
	Clock clock.WithTicker
	// Healthy and Unhealthy are the times between two questions, after an answer
	// without and with something wrong.
	Healthy, Unhealthy time.Duration
	// Wake says that it is worth asking before that. It may be nil.
	Wake <-chan struct{}
}

// Loop follows a plugin: it asks at once and then at its polls, in a goroutine
// of its own, until it is stopped. A nil Loop is one that has ended. Safe for
// concurrent use.
type Loop struct {
	polls Polls
	ask   func(context.Context) error
	wants chan chan error // of those who want it asked now
	asked chan struct{}   // closed when the first question was answered
	stop  context.CancelFunc
	done  chan struct{}
}

// Follow begins to follow a plugin as soon as the loop before has ended, so that
// of two loops one after the other only one ever asks. ask is called by the
// loop's goroutine alone, and its error says that something is wrong.
func Follow(polls Polls, before *Loop, ask func(context.Context) error) *Loop {
	ctx, stop := context.WithCancel(context.Background())
	l := &Loop{polls: polls, ask: ask, wants: make(chan chan error), asked: make(chan struct{}), stop: stop, done: make(chan struct{})}
	go l.run(ctx, before)
	return l
}

// Stop has the loop end. It waits for nobody.
func (l *Loop) Stop() {
	if l != nil {
		l.stop()
	}
}

// Wait waits until the loop has ended.
func (l *Loop) Wait() {
	if l != nil {
		<-l.done
	}
}

func (l *Loop) run(ctx context.Context, before *Loop) {
	defer close(l.done)
	before.Wait()
	var waiting chan error
	for first := true; ctx.Err() == nil; first = false {
		outcome := l.ask(ctx)
		if first {
			close(l.asked)
		}
		l.answer(waiting, outcome)
		waiting = l.pause(ctx, outcome)
	}
}

// pause waits until it is worth asking again, and tells who wants that, if
// somebody does.
func (l *Loop) pause(ctx context.Context, outcome error) (waiting chan error) {
	poll := l.polls.Healthy
	if outcome != nil {
		poll = l.polls.Unhealthy
	}
	timer := l.polls.Clock.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	case <-l.polls.Wake:
	case waiting = <-l.wants:
	}
	return waiting
}

// answer tells an outcome to the one who asked for it and to all who came while
// it was under way.
func (l *Loop) answer(waiting chan error, outcome error) {
	for waiting != nil {
		waiting <- outcome
		select {
		case waiting = <-l.wants:
		default:
			waiting = nil
		}
	}
}

// Asked waits until the plugin was asked for the first time, whatever came of
// it, or until ctx ends. It fails with [ErrClosed] when the loop ends before.
func (l *Loop) Asked(ctx context.Context) error {
	select {
	case <-l.asked:
		return nil
	case <-l.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ask has the plugin asked now and returns what came of it. It fails with
// [ErrClosed] when the loop ends before.
func (l *Loop) Ask(ctx context.Context) error {
	reply := make(chan error, 1)
	select {
	case l.wants <- reply:
	case <-l.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-reply:
		return err
	case <-l.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
