package reload

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Build makes a generation from a content of the file: complete and checked,
// or an error. An error with a method Retryable() bool that returns true means
// that the same content may succeed later: it is tried again at each poll.
//
// Build may wait for others, bounds that waiting, and ends when ctx does: that is
// when the file holds another content, which is built next. Its errors must not
// hold key material.
type Build[G Generation] func(ctx context.Context, content []byte) (G, error)

// Config is what a [Controller] works with. Path, Hash, Build and Set are
// required.
type Config[G Generation] struct {
	// Path leads to the file.
	Path string
	// Hash is that of the content in use (see [Hash]).
	Hash string
	// Build is called for one content at a time, while the file is looked at.
	Build Build[G]
	// Set is where generations are swapped. The controller does not close it.
	Set *Set[G]

	// Poll is the longest time between two looks at the file. An outcome
	// that lasts so long counts even if the file is open for writing, and
	// only then a file that cannot be read counts as a failure. Default 10 s.
	Poll time.Duration
	// Quiet is how long the file must be still after its last event, with
	// the same content before and after and nobody (as far as the system can
	// tell) having it open for writing. It may not exceed Poll. Default 40 ms.
	// For a change without an event it is a tenth of Poll, if that is longer.
	Quiet time.Duration
	// Clock is the real clock by default.
	Clock clock.WithTicker
	// Notifier is that of the operating system by default.
	Notifier Notifier
	// Hooks report what happens.
	Hooks Hooks[G]
}

// The defaults of [Config].
const (
	DefaultPoll  = 10 * time.Second
	DefaultQuiet = 40 * time.Millisecond
)

func (c Config[G]) complete() (Config[G], error) {
	if c.Path == "" || c.Hash == "" || c.Build == nil || c.Set == nil {
		return c, errors.New("reload: Path, Hash, Build and Set are required")
	}
	if c.Poll == 0 {
		c.Poll = DefaultPoll
	}
	if c.Quiet == 0 {
		c.Quiet = min(DefaultQuiet, c.Poll)
	}
	if c.Quiet < 0 || c.Poll < c.Quiet {
		return c, fmt.Errorf("reload: want 0 < quiet <= poll, got quiet %v and poll %v", c.Quiet, c.Poll)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Notifier == nil {
		c.Notifier = fsNotify{}
	}
	var err error
	c.Path, err = filepath.Abs(c.Path)
	return c, err
}

// Controller keeps a [Set] in step with a file. Status may be called at any
// time by anyone, Run once.
type Controller[G Generation] struct {
	config   Config[G]
	settling settling
	status   atomic.Pointer[Status] // stored by the goroutine of Run
	watching watching
	building building[G]
	telling  telling // of the latest failure
}

// NewController returns a controller, or an error that names what is wrong with
// config. It does nothing before Run.
func NewController[G Generation](config Config[G]) (*Controller[G], error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	c := &Controller[G]{
		config: config,
		settling: settling{
			announced:   config.Quiet,
			unannounced: max(config.Quiet, config.Poll/10),
			patience:    config.Poll,
		},
	}
	c.status.Store(&Status{Hash: config.Hash, LoadedAt: config.Clock.Now()})
	return c, nil
}

// Status returns what is known now.
func (c *Controller[G]) Status() Status { return *c.status.Load() }

// reason is why the file is looked at.
type reason int

const (
	polled reason = iota // at each poll
	told                 // an event came
	due                  // an earlier look asked for it
)

// Run follows the file until ctx is done. When it returns, nothing that it
// started is left.
func (c *Controller[G]) Run(ctx context.Context) {
	poll := c.config.Clock.NewTicker(c.config.Poll)
	defer poll.Stop()
	defer c.watching.end()
	defer c.abandon()
	again := alarm{clock: c.config.Clock}
	defer again.stop()

	again.set(c.look(ctx, due))
	for ctx.Err() == nil {
		why := due
		select {
		case <-ctx.Done():
			return
		case <-poll.C():
			why = polled
		case _, ok := <-c.watching.events:
			why = told
			if !ok {
				c.watching.end()
			}
		case <-again.ring():
		case built := <-c.building.done:
			c.built(built)
			continue
		}
		again.set(c.look(ctx, why))
	}
}

// look looks at the file once, acts if what it saw counts, and returns when to
// look again before the next poll; zero for not.
func (c *Controller[G]) look(ctx context.Context, why reason) time.Duration {
	c.watch(ctx)
	l := lookAt(c.config.Path)
	if why == polled && !l.sameOutcome(c.settling.last) {
		// No event told, so the watched folders may not be the right ones any
		// more: something may have been mounted over them.
		c.watching.end()
		c.watch(ctx)
		l = lookAt(c.config.Path) // meanwhile there were no events
	}
	wait := c.settling.saw(l, why == told, c.config.Clock.Now())
	if wait == 0 {
		c.act(ctx, l, why)
	}
	return wait
}

// act brings the Set in step with a look that counts. Most often it is already,
// or about to be.
func (c *Controller[G]) act(ctx context.Context, l look, why reason) {
	if l.err == nil && l.hash == c.building.hash {
		return
	}
	abandoned := c.abandon()
	status := c.Status()
	switch {
	case l.err != nil:
		if abandoned {
			status.LastError = nil // it could be read meanwhile: this is another failure
		}
		c.failed(status, "", l.err)
	case l.hash == status.Hash:
		if abandoned || status.LastError != nil {
			c.cleared(status)
		}
	case l.hash == status.FailedHash && !abandoned && (!status.Retrying || why != polled):
		// It is built again in the place of another, so that Build lets go of
		// what it may hold of that.
	default:
		c.build(ctx, l)
	}
}

func (c *Controller[G]) cleared(status Status) {
	status.LastError, status.FailedHash, status.FailedSince, status.Retrying = nil, "", time.Time{}, false
	c.status.Store(&status)
	call(c.config.Hooks.Cleared, status)
}
