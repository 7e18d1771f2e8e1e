package lookahead

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// resourcesAtOnce is how many resources are looked through at once.
	resourcesAtOnce = 4
	// within is how long it may take to look through one.
	within = time.Minute
	// mostKept is of how many resources it is known that they were looked through,
	// and how many may wait for that: more than servers have. Beyond it one may be
	// looked through twice, or not at all.
	mostKept = 4096
)

// Target is the objects of one resource, and the etcd that they are in.
type Target struct {
	// Resource names it in the log.
	Resource string
	// Prefix is what its keys in etcd begin with. It ends in '/'.
	Prefix string
	// Endpoints are those of the members, as kube-apiserver has them.
	Endpoints []string
	// CertFile, KeyFile and CAFile are in PEM. Without the first and the last the
	// endpoints are spoken to without TLS, or with it as their scheme says.
	CertFile, KeyFile, CAFile string
}

// Options are what a Scout works with. All are needed.
type Options struct {
	// Warm is handed one value of each DEK that is found in a resource, takes them
	// as fast as it likes, and returns how many DEKs it asked a plugin for.
	Warm func(context.Context, iter.Seq[[]byte]) int
	// MostDEKs is how many DEKs are looked for in a resource: as many as are kept.
	MostDEKs int
	// Clock bounds the time that a resource takes.
	Clock clock.WithTicker
	// Logger is told at level 1 what was found in each resource, and at what cost.
	Logger klog.Logger
}

// Scout looks through resources in the background, some at once, each once and in
// the order in which they came.
// Safe for concurrent use.
type Scout struct {
	options Options
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	spare   atomic.Int64
	ended   sync.WaitGroup

	mu      sync.Mutex
	seen    map[string]struct{} // resources that were, or are to be, looked through
	waiting []Target
	looking int // goroutines that take those
}

// New makes a Scout, which the caller closes.
func New(o Options) *Scout {
	s := &Scout{options: o, seen: map[string]struct{}{}}
	s.spare.Store(spareBytes)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Look has a resource looked through, and returns at once. It does nothing if
// that was asked for before, if thousands wait for it, or after Close.
func (s *Scout) Look(t Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	where := strings.Join(append([]string{t.Prefix}, t.Endpoints...), " ")
	if _, twice := s.seen[where]; twice || s.ctx.Err() != nil || len(s.waiting) >= mostKept {
		return
	}
	for other := range s.seen {
		if len(s.seen) < mostKept {
			break
		}
		delete(s.seen, other)
	}
	s.seen[where] = struct{}{}
	s.waiting = append(s.waiting, t)
	if s.looking < resourcesAtOnce {
		s.looking++
		s.ended.Go(s.lookThrough)
	}
}

// Close ends everything, and waits for it.
func (s *Scout) Close() {
	s.mu.Lock()
	s.stop()
	s.waiting = nil
	s.mu.Unlock()
	s.ended.Wait()
}

// lookThrough looks through resources, one after another, until none waits.
func (s *Scout) lookThrough() {
	for {
		t, ok := s.next()
		if !ok {
			return
		}
		start := s.options.Clock.Now()
		unwrapped, cost, err := s.look(t)
		s.options.Logger.V(1).Info("Looked ahead for data encryption keys", "resource", t.Resource, "unwrapped", unwrapped,
			"bytes", cost.spent, "reads", cost.pages, "took", s.options.Clock.Since(start), "endedBy", err)
	}
}

// next is the resource that has waited longest.
func (s *Scout) next() (Target, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		s.looking--
		s.waiting = nil // with what it once had room for
		return Target{}, false
	}
	t := s.waiting[0]
	s.waiting[0] = Target{}
	s.waiting = s.waiting[1:]
	return t, true
}

// errLate is why a look ends that takes too long.
var errLate = errors.New("it took too long")

// look looks through a resource. What it did not come to is left to the readers,
// who are also told of what does not work.
func (s *Scout) look(t Target) (unwrapped int, cost budget, err error) {
	ctx, end := s.bounded()
	defer end()
	etcd, err := dial(t)
	if err != nil {
		return 0, budget{}, err
	}
	defer etcd.close()
	search := newSearch(etcd, s.options.MostDEKs, &s.spare)
	unwrapped = s.options.Warm(ctx, search.values(ctx, t.Prefix, following(t.Prefix)))
	return unwrapped, search.budget, cmp.Or(context.Cause(ctx), search.err)
}

// bounded gives a context that ends when the time for a resource is over, or with
// the function that is returned.
func (s *Scout) bounded() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	timer := s.options.Clock.NewTimer(within)
	s.ended.Go(func() {
		select {
		case <-timer.C():
			cancel(errLate)
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}
