package reload

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/utils/clock"
)

// ErrClosed is returned by every read and write that begins after [Set.Close].
var ErrClosed = errors.New("encryption at rest has ended: this server is shutting down")

// Generation is what was built from one content of the file: complete, checked
// and immutable.
type Generation interface {
	// TransformerForResource returns the transformer of a resource. It is
	// cheap, safe for concurrent use, gives an equal transformer each time and
	// never nil. A transformer does not keep the value.Context that it is given:
	// it is another operation's when it has returned.
	value.ResourceTransformers
	// Close is called once, when the Set uses the generation no more: when its
	// last operation has ended, or when [SetOptions.Drain] has passed, so that
	// operations may still be inside. Those may fail then, and are done again
	// on the current generation. Close may block; it delays nothing but
	// [Set.Close].
	Close()
}

// Committer is a [Generation] that has something to do when it takes over. Commit
// is called once, must call swap once, which makes it current, and must not block
// otherwise. What only new writes need, such as a loop that follows a plugin, it
// can begin before the swap and end after it: from then on writes that began
// earlier may still end in the generation that it replaced, and that one is read
// until it is closed.
type Committer interface {
	Commit(swap func())
}

// SetOptions are the bounds of a [Set]. The zero value means the defaults.
type SetOptions struct {
	// Clock is the real clock by default.
	Clock clock.Clock
	// Linger is how long a replaced generation stays readable to requests that
	// began before it was replaced, at most until the next swap. The default
	// is 1 minute, kube-apiserver's default --request-timeout. Negative means
	// not at all.
	Linger time.Duration
	// Drain is how long, after that, the operations inside a replaced
	// generation may take until it is closed nonetheless. The default is 1
	// minute.
	Drain time.Duration
	// Unreadable tells of the error of a read whether another generation might
	// do better: an unknown provider or key, or a value that another key of the
	// same name would open, but not an outage. The default is yes, which tries a
	// failed read twice while a generation lingers. If that fails too, the first
	// error counts.
	Unreadable func(error) bool
}

func (o SetOptions) withDefaults() SetOptions {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Linger == 0 {
		o.Linger = time.Minute
	}
	if o.Drain <= 0 {
		o.Drain = time.Minute
	}
	if o.Unreadable == nil {
		o.Unreadable = func(error) bool { return true }
	}
	return o
}

// Set is a value.ResourceTransformers that is always current, of generations of one
// type. It owns those given to it and closes each once. All methods are safe for
// concurrent use.
type Set[G Generation] struct{ set }

var _ value.ResourceTransformers = &Set[Generation]{}

// set is a Set of generations of any type.
type set struct {
	options SetOptions
	current atomic.Pointer[generation]

	mu       sync.Mutex // guards the below, and that swaps come one by one
	handles  map[schema.GroupResource]weak.Pointer[handle]
	closed   bool
	retiring sync.WaitGroup
}

// generation is a Generation in use.
type generation struct {
	Generation
	*inflight
	ended    bool          // this marks the end of the Set: nothing enters the Generation
	since    time.Time     // when it became current
	replaced chan struct{} // closed when it is current no more
	// before is the generation this one replaced, while that one lingers.
	before atomic.Pointer[generation]
}

// NewSet returns a Set in which first is current.
func NewSet[G Generation](first G, options SetOptions) *Set[G] {
	s := &Set[G]{set{
		options: options.withDefaults(),
		handles: map[schema.GroupResource]weak.Pointer[handle]{},
	}}
	s.current.Store(s.newGeneration(first))
	return s
}

// Current returns the current generation; after Close, the last one. It is for
// looking (health, what to keep for the next generation): nothing stops it from
// being replaced and closed meanwhile.
func (s *Set[G]) Current() G {
	return s.current.Load().Generation.(G) // nothing else comes in
}

// swap makes next current, for all resources at once, and returns. What it
// replaces is closed later (see the package comment). On a closed Set it closes
// next and returns false. Swaps come one after another, from one goroutine.
func (s *Set[G]) swap(next G) (swapped bool) {
	replace := func() { swapped = s.replace(next) }
	if c, ok := Generation(next).(Committer); ok {
		c.Commit(replace)
	} else {
		replace()
	}
	if !swapped {
		next.Close()
	}
	return swapped
}

func (s *set) newGeneration(g Generation) *generation {
	return &generation{
		Generation: g,
		inflight:   newInflight(),
		since:      s.options.Clock.Now(),
		replaced:   make(chan struct{}),
	}
}

// TransformerForResource returns the handle of a resource, which uses the
// current generation at each operation. It is the same for every call as long as
// somebody holds it, and may be called at any time, also for resources that no
// generation has named yet. Nothing is kept of a handle that is let go: servers
// have custom resources that come and go.
func (s *set) TransformerForResource(resource schema.GroupResource) value.Transformer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.handles[resource].Value(); h != nil {
		return h
	}
	h := &handle{set: s, resource: resource}
	h.bindTo(s.current.Load())
	s.handles[resource] = weak.Make(h)
	runtime.AddCleanup(h, s.forget, resource)
	return h
}

// forget forgets the handle of a resource, unless there is another by now.
func (s *set) forget(resource schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handles[resource].Value() == nil {
		delete(s.handles, resource)
	}
}

func (s *set) replace(next Generation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	g := s.newGeneration(next)
	if s.options.Linger > 0 {
		g.before.Store(s.current.Load())
	}
	s.install(g)
	return true
}

// install is called with mu held.
func (s *set) install(g *generation) {
	old := s.current.Swap(g)
	close(old.replaced)
	// A handle that is not used after the swap must not keep the old
	// generation, with its keys, in memory.
	for _, handle := range s.handles {
		if h := handle.Value(); h != nil {
			h.bindTo(g)
		}
	}
	s.retiring.Go(func() { s.retire(old, g) })
}

// retire sees old, which next has replaced, to its end.
func (s *set) retire(old, next *generation) {
	if next.before.Load() != nil {
		s.linger(next)
		next.before.Store(nil)
	}
	timeout := s.options.Clock.NewTimer(s.options.Drain)
	defer timeout.Stop()
	old.drain(timeout)
	old.Close()
}

func (s *set) linger(next *generation) {
	timer := s.options.Clock.NewTimer(s.options.Linger)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-next.replaced:
	}
}

// Close ends the Set: operations that begin later fail with [ErrClosed], every
// generation is closed as after a swap but without lingering, and then Close
// returns. Further calls wait for the same and do nothing else.
func (s *set) Close() {
	s.end()
	s.retiring.Wait()
}

func (s *set) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	last := s.newGeneration(s.current.Load().Generation)
	last.ended = true
	s.install(last)
}

// transformerFor never returns nil: a nil transformer would end the process in
// the watch's goroutines, and taking it for "no encryption" would write
// plaintext.
func (g *generation) transformerFor(resource schema.GroupResource) value.Transformer {
	if g.ended {
		return failing{ErrClosed}
	}
	if t := g.TransformerForResource(resource); t != nil {
		return t
	}
	return failing{fmt.Errorf("no transformer for resource %q was built from the encryption config: this is a defect of the program, not of the config", resource)}
}
