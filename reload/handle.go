package reload

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/tally"
)

// handle is the transformer of one resource in whichever generation is
// current. An operation costs it two loads of one pointer, a compare and two
// additions to a counter that another processor seldom has: no lock, no look-up,
// no allocation.
type handle struct {
	set      *set
	resource schema.GroupResource
	bound    atomic.Pointer[binding]
}

var _ value.Transformer = &handle{}

// binding is what a handle remembers of the generation it last used.
type binding struct {
	*generation
	transformer value.Transformer
}

// bindTo returns the binding to g. It is remembered only while g is current: a
// late operation must not put back what the swap has replaced.
func (h *handle) bindTo(g *generation) *binding {
	for {
		last := h.bound.Load()
		if last != nil && last.generation == g {
			return last
		}
		b := &binding{generation: g, transformer: g.transformerFor(h.resource)}
		if h.set.current.Load() != g || h.bound.CompareAndSwap(last, b) {
			return b
		}
	}
}

// enter counts an operation into the current generation.
func (h *handle) enter(v *tally.Visit) (*binding, *slot) {
	for {
		g := h.set.current.Load()
		if s := h.set.enter(g, v); s != nil {
			return h.bindTo(g), s
		}
	}
}

// enter counts an operation into g if it is current. If it still is after it was
// counted, then its draining begins later and sees the count.
func (s *set) enter(g *generation, v *tally.Visit) *slot {
	slot := g.enter(v)
	if s.current.Load() == g {
		return slot
	}
	g.leave(slot)
	return nil
}

// end ends an operation inside the generation.
func (g *generation) end(v *tally.Visit, s *slot) {
	g.leave(s)
	v.End()
}

// TransformFromStorage reads with the current generation.
func (h *handle) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	for {
		out, stale, used, err := h.read(ctx, data, dataCtx)
		if err == nil {
			return out, stale, nil
		}
		if !h.set.hasReplaced(used) {
			return h.readBefore(ctx, data, dataCtx, failure{used, err})
		}
	}
}

func (h *handle) read(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, *generation, error) {
	v := tally.Begin(dataCtx)
	b, s := h.enter(v)
	defer b.end(v, s)
	out, stale, err := b.transformer.TransformFromStorage(ctx, data, v)
	return out, stale, b.generation, err
}

// TransformToStorage writes with the current generation.
func (h *handle) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	for {
		out, used, err := h.write(ctx, data, dataCtx)
		if err == nil || !h.set.hasReplaced(used) {
			return out, err
		}
	}
}

func (h *handle) write(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, *generation, error) {
	v := tally.Begin(dataCtx)
	b, s := h.enter(v)
	defer b.end(v, s)
	out, err := b.transformer.TransformToStorage(ctx, data, v)
	return out, b.generation, err
}

// hasReplaced reports whether there is a newer generation than used.
func (s *set) hasReplaced(used *generation) bool {
	current := s.current.Load()
	return current != used && !current.ended
}

// failure is a read's error and the generation that gave it.
type failure struct {
	used *generation
	err  error
}

// readBefore tries a failed read on the generation before, if that one lingers
// and the request began before it was replaced. The value is stale: the
// current generation would not have written it.
func (h *handle) readBefore(ctx context.Context, data []byte, dataCtx value.Context, failed failure) ([]byte, bool, error) {
	before := failed.used.before.Load()
	if before == nil || !h.set.options.Unreadable(failed.err) || !beganBefore(ctx, failed.used.since) {
		return nil, false, failed.err
	}
	v := tally.Begin(dataCtx)
	s := before.enter(v)
	defer before.end(v, s)
	if failed.used.before.Load() != before {
		return nil, false, failed.err // it may be closed already
	}
	out, _, err := before.transformerFor(h.resource).TransformFromStorage(ctx, data, v)
	if err != nil {
		return nil, false, failed.err
	}
	return out, true, nil
}

// beganBefore reports whether the request of ctx was received before t. What is
// no request, such as the watch that fills a cache, may have begun at any time.
func beganBefore(ctx context.Context, t time.Time) bool {
	received, ok := genericapirequest.ReceivedTimestampFrom(ctx)
	return !ok || received.Before(t)
}

// failing is the transformer of a resource that has none.
type failing struct{ err error }

func (f failing) TransformFromStorage(context.Context, []byte, value.Context) ([]byte, bool, error) {
	return nil, false, f.err
}

func (f failing) TransformToStorage(context.Context, []byte, value.Context) ([]byte, error) {
	return nil, f.err
}
