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

// Scout looks through resources in the background, some at once and each once.
// Safe for concurrent use.
type Scout struct {
	options Options
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	turns   chan struct{} // holds a token for each resource that is looked through
	spare   atomic.Int64
	ended   sync.WaitGroup

	mu   sync.Mutex
	seen map[string]struct{} // resources that were, or are to be, looked through
}

// New makes a Scout, which the caller closes.
func New(o Options) *Scout {
	s := &Scout{options: o, turns: make(chan struct{}, resourcesAtOnce), seen: map[string]struct{}{}}
	s.spare.Store(spareBytes)
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Look has a resource looked through, and returns at once. It does nothing if
// that was asked for before, or after Close.
func (s *Scout) Look(t Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	where := strings.Join(append([]string{t.Prefix}, t.Endpoints...), " ")
	if _, twice := s.seen[where]; twice || s.ctx.Err() != nil {
		return
	}
	s.seen[where] = struct{}{}
	s.ended.Go(func() { s.inTurn(t) })
}

// Close ends everything, and waits for it.
func (s *Scout) Close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.ended.Wait()
}

func (s *Scout) inTurn(t Target) {
	s.turns <- struct{}{}
	defer func() { <-s.turns }()
	if s.ctx.Err() != nil {
		return
	}
	start := s.options.Clock.Now()
	unwrapped, cost, err := s.look(t)
	s.options.Logger.V(1).Info("Looked ahead for data encryption keys", "resource", t.Resource, "unwrapped", unwrapped,
		"bytes", cost.spent, "reads", cost.pages, "took", s.options.Clock.Since(start), "endedBy", err)
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
