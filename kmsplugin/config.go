package kmsplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

// Config is how a [Keeper] keeps a back end. What is zero has the value that its comment
// names.
type Config struct {
	// Concurrency is how many calls of a session may run at once: 64. A TPM takes one, an HSM
	// as many as it has sessions. Others wait for their turn.
	Concurrency int
	// CallTimeout bounds each call of a session: 2.5 s, which is less than the 3 s that an
	// apiserver waits. OpenTimeout bounds [Backend.Open]: 30 s.
	CallTimeout, OpenTimeout time.Duration
	// Poll is the time between two looks at the versions: 10 s. While something is wrong it
	// is looked at more often.
	Poll time.Duration
	// Probe is the time between two DEKs that are wrapped and unwrapped as a test: 1 min.
	Probe time.Duration
	// Steady is how many polls in a row have to find a new version before it is
	// announced: 2. HoldDown is how old it has to be by then: 0. With several nodes
	// it is longer than a copy of the keys takes to get to all of them, and than their
	// clocks, and those of who makes keys, differ.
	Steady   int
	HoldDown time.Duration
	// Pin is the label of the one version that is wrapped with, whatever the back end
	// says; empty is what the back end says.
	Pin string
	// Credentials are files. When one changes the back end is opened anew, and calls go
	// over to the new session.
	Credentials []string
	// Observer is told what happens; by default nobody is.
	Observer Observer
	// Clock is the system's unless a test hands another in.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, 64)
	c.CallTimeout = cmp.Or(c.CallTimeout, 2500*time.Millisecond)
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 30*time.Second)
	c.Poll = cmp.Or(c.Poll, 10*time.Second)
	c.Probe = cmp.Or(c.Probe, time.Minute)
	c.Steady = cmp.Or(c.Steady, 2)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}

func (c Config) check() error {
	if c.Concurrency < 1 || c.Steady < 1 {
		return fmt.Errorf("kmsplugin: Concurrency is %d and Steady %d: both have to be at least 1", c.Concurrency, c.Steady)
	}
	for name, d := range map[string]time.Duration{"CallTimeout": c.CallTimeout, "OpenTimeout": c.OpenTimeout, "Poll": c.Poll, "Probe": c.Probe} {
		if d <= 0 {
			return fmt.Errorf("kmsplugin: %s is %s: it has to be over 0", name, d)
		}
	}
	if c.HoldDown < 0 {
		return fmt.Errorf("kmsplugin: HoldDown is %s: it may not be negative", c.HoldDown)
	}
	return nil
}

// errLate is why a call that takes too long ends.
var errLate = errors.New("no answer in time")

// within is ctx for at most some time, by the clock.
func (c Config) within(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	late := fmt.Errorf("%w: %w of %s", ErrUnavailable, errLate, most)
	if c.Clock == clock.WithTicker(clock.RealClock{}) { // without a goroutine
		return context.WithTimeoutCause(ctx, most, late)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := c.Clock.NewTimer(most)
	go func() {
		defer timer.Stop()
		select {
		case <-timer.C():
			cancel(late)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}
