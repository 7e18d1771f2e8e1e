package reload

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/bubble"
)

// fakeNotifier is a Notifier whose events a test makes.
type fakeNotifier struct {
	mu     sync.Mutex
	err    error
	events chan struct{}
	lost   chan struct{}
	opened int
	// during, if set, is called by the next Notify.
	during func()
}

func (n *fakeNotifier) Notify(ctx context.Context, _ string) (<-chan struct{}, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return nil, n.err
	}
	events, lost := make(chan struct{}, 1), make(chan struct{})
	n.events, n.lost = events, lost
	n.opened++
	if n.during != nil {
		n.during()
		n.during = nil
	}
	go func() {
		defer close(events)
		select {
		case <-ctx.Done():
		case <-lost:
		}
	}()
	return events, nil
}

func (n *fakeNotifier) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
}

// follower is a controller at work in a bubble, with a file, a fake clock and
// fake events. Its Build takes every content except those in refuses.
type follower struct {
	*testing.T
	path       string
	clock      *clocktesting.FakeClock
	notifier   *fakeNotifier
	controller *Controller[Generation]
	log        ktesting.Buffer

	refuses map[string]error
	// during, if set, is called by Build.
	during                  func(context.Context)
	built                   []string
	made                    map[string]*fakeGeneration // by content, the latest of each
	loaded, failed, cleared []Status
	reworded                []Status
}

const inUse = "first content"

// follow runs test beside a controller whose file holds inUse.
func follow(t *testing.T, test func(*follower)) {
	bubble.Test(t, func(t *testing.T) {
		f := &follower{
			T: t, path: filepath.Join(t.TempDir(), "config"),
			clock: clocktesting.NewFakeClock(start), notifier: &fakeNotifier{},
			refuses: map[string]error{}, made: map[string]*fakeGeneration{},
		}
		writeFile(t, f.path, inUse)
		set := NewSet[Generation](&fakeGeneration{name: inUse}, SetOptions{Clock: f.clock, Linger: -1})
		var err error
		f.controller, err = NewController(Config[Generation]{
			Path: f.path, Hash: Hash([]byte(inUse)), Build: f.build, Set: set,
			Clock: f.clock, Notifier: f.notifier,
			Hooks: Hooks[Generation]{
				Loaded:   func(_ Generation, s Status) { f.loaded = append(f.loaded, s) },
				Failed:   func(s Status) { f.failed = append(f.failed, s) },
				Reworded: func(s Status) { f.reworded = append(f.reworded, s) },
				Cleared:  func(s Status) { f.cleared = append(f.cleared, s) },
			},
		})
		require.NoError(t, err)
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(10)))
		f.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
		ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
		done := make(chan struct{})
		go func() { f.controller.Run(ctx); close(done) }()
		synctest.Wait()
		defer set.Close()
		defer func() { stop(); <-done }()
		f.pass(2 * DefaultPoll) // what it does at its start is over
		test(f)
	})
}

func (f *follower) build(ctx context.Context, content []byte) (Generation, error) {
	if f.during != nil {
		f.during(ctx)
	}
	f.built = append(f.built, string(content))
	if err := f.refuses[string(content)]; err != nil {
		return nil, err
	}
	g := &fakeGeneration{name: string(content)}
	f.made[g.name] = g
	return g, nil
}

// abandoned, as what is done during Build, waits until nobody wants it any longer.
func abandoned(ctx context.Context) { <-ctx.Done() }

// inUse is the name of what is current.
func (f *follower) inUse() string { return f.controller.config.Set.Current().(*fakeGeneration).name }

// pass lets time pass, in steps that no timer is shorter than.
func (f *follower) pass(d time.Duration) {
	for ; d > 0; d -= 10 * time.Millisecond {
		f.clock.Step(min(d, 10*time.Millisecond))
		synctest.Wait()
	}
}

// event is what a change of the file brings.
func (f *follower) event() {
	tell(f.notifier.events)
	synctest.Wait()
}

// lose ends the events that there were.
func (f *follower) lose() {
	close(f.notifier.lost)
	synctest.Wait()
}

func (f *follower) write(content string) { writeFile(f.T, f.path, content) }

// put writes content, with its event, and lets it settle.
func (f *follower) put(content string) {
	f.write(content)
	f.event()
	f.pass(DefaultQuiet)
}

// retry is an error that asks to be retried.
type retry struct{ error }

func (retry) Retryable() bool { return true }

func (f *follower) requireBuilt(contents ...string) {
	f.Helper()
	if !slices.Equal(contents, f.built) {
		require.Equal(f, contents, f.built)
	}
}

var errBad = errors.New("line 1: bad")
