package reload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/value"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/bubble"
)

var (
	secrets    = schema.GroupResource{Resource: "secrets"}
	configMaps = schema.GroupResource{Resource: "configmaps"}
	etcdKey    = value.DefaultContext("/registry/key")
	start      = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// fakeGeneration stores a value as "<name>:<value>", and reads what it wrote
// itself, or everything.
type fakeGeneration struct {
	name     string
	readsAll bool
	closed   atomic.Int32
	late     atomic.Int32 // operations that it was closed under
	// inside, if set, is called in the middle of each operation.
	inside func()
}

func (g *fakeGeneration) TransformerForResource(resource schema.GroupResource) value.Transformer {
	if resource.Resource == "none" {
		return nil
	}
	return fakeTransformer{g}
}

func (g *fakeGeneration) Close() { g.closed.Add(1) }

type fakeTransformer struct{ *fakeGeneration }

func (t fakeTransformer) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	if err := t.work(); err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s:%s", t.name, data), nil
}

func (t fakeTransformer) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	if err := t.work(); err != nil {
		return nil, false, err
	}
	writer, out, _ := bytes.Cut(data, []byte(":"))
	if string(writer) != t.name && !t.readsAll {
		return nil, false, fmt.Errorf("%s does not know %s", t.name, writer)
	}
	return out, string(writer) != t.name, nil
}

// work fails, as a real generation may, if it is closed before its end.
func (t fakeTransformer) work() error {
	if t.inside != nil {
		t.inside()
	}
	if t.closed.Load() > 0 {
		t.late.Add(1)
		return errors.New("used after it was closed")
	}
	return nil
}

func write(t *testing.T, s *Set[Generation], resource schema.GroupResource) string {
	t.Helper()
	out, err := s.TransformerForResource(resource).TransformToStorage(t.Context(), []byte("v"), etcdKey)
	require.NoError(t, err)
	return string(out)
}

func read(ctx context.Context, s *Set[Generation], stored string) (string, bool, error) {
	out, stale, err := s.TransformerForResource(secrets).TransformFromStorage(ctx, []byte(stored), etcdKey)
	return string(out), stale, err
}

func newSet(first Generation) (*Set[Generation], *clocktesting.FakeClock) {
	clock := clocktesting.NewFakeClock(start)
	return NewSet[Generation](first, SetOptions{Clock: clock}), clock
}

func TestSwapIsForAllResourcesAtOnce(t *testing.T) {
	one, two := &fakeGeneration{name: "one"}, &fakeGeneration{name: "two"}
	s, _ := newSet(one)
	defer s.Close()
	held := s.TransformerForResource(secrets)
	require.Equal(t, "one:v", write(t, s, secrets))

	s.swap(two)
	require.Same(t, two, s.Current())
	require.Equal(t, "two:v", write(t, s, secrets))
	require.Equal(t, "two:v", write(t, s, configMaps), "a resource that is new after the swap")
	require.Same(t, held, s.TransformerForResource(secrets), "one handle per resource, for good")
}

func TestReplacedGenerationIsClosedWhenItsLastOperationEnded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		one := &fakeGeneration{name: "one", inside: func() { <-release }}
		s := NewSet[Generation](one, SetOptions{Clock: clocktesting.NewFakeClock(start), Linger: -1})
		defer s.Close()
		done := make(chan string)
		go func() { done <- write(t, s, secrets) }()
		synctest.Wait()

		s.swap(&fakeGeneration{name: "two"})
		synctest.Wait()
		require.Zero(t, one.closed.Load(), "an operation is inside")

		close(release)
		require.Equal(t, "one:v", <-done, "it ends where it began")
		synctest.Wait()
		require.EqualValues(t, 1, one.closed.Load())
	})
}

func TestOperationThatOutlivesTheBoundIsDoneAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		one := &fakeGeneration{name: "one", inside: func() { <-release }}
		clock := clocktesting.NewFakeClock(start)
		s := NewSet[Generation](one, SetOptions{Clock: clock, Linger: -1, Drain: 5 * time.Second})
		defer s.Close()
		written := make(chan string)
		go func() { written <- write(t, s, secrets) }()
		readBack := make(chan error)
		go func() {
			_, _, err := read(t.Context(), s, "two:v")
			readBack <- err
		}()
		synctest.Wait()

		s.swap(&fakeGeneration{name: "two"})
		synctest.Wait()
		clock.Step(5*time.Second - 1)
		synctest.Wait()
		require.Zero(t, one.closed.Load())
		clock.Step(1)
		synctest.Wait()
		require.EqualValues(t, 1, one.closed.Load())

		close(release)
		require.Equal(t, "two:v", <-written)
		require.NoError(t, <-readBack)
	})
}

func TestRequestThatBeganBeforeTheSwapEndsWell(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		one := &fakeGeneration{name: "one"}
		s, clock := newSet(one)
		defer s.Close()
		list := genericapirequest.WithReceivedTimestamp(t.Context(), clock.Now())
		clock.Step(time.Second)
		s.swap(&fakeGeneration{name: "two"})
		synctest.Wait()
		later := genericapirequest.WithReceivedTimestamp(t.Context(), clock.Now())

		out, stale, err := read(list, s, "one:v")
		require.NoError(t, err)
		require.Equal(t, "v", out)
		require.True(t, stale, "the current generation did not write it")
		_, _, err = read(list, s, "other:v")
		require.EqualError(t, err, "two does not know other", "the current generation's error counts")
		_, _, err = read(later, s, "one:v")
		require.EqualError(t, err, "two does not know one", "what began after the swap uses the new generation alone")
		_, _, err = read(t.Context(), s, "one:v")
		require.NoError(t, err, "of a watch that fills a cache nobody knows when it began")

		clock.Step(time.Minute - 1)
		synctest.Wait()
		require.Zero(t, one.closed.Load())
		clock.Step(1)
		synctest.Wait()
		require.EqualValues(t, 1, one.closed.Load())
		_, _, err = read(list, s, "one:v")
		require.Error(t, err)
	})
}

func TestOnlyTheLastReplacedGenerationLingers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		one, two := &fakeGeneration{name: "one"}, &fakeGeneration{name: "two"}
		s, clock := newSet(one)
		s.swap(two)
		s.swap(&fakeGeneration{name: "three"})
		synctest.Wait()
		require.EqualValues(t, 1, one.closed.Load())
		require.Zero(t, two.closed.Load())
		_, _, err := read(t.Context(), s, "two:v")
		require.NoError(t, err)

		s.Close()
		require.EqualValues(t, 1, two.closed.Load(), "closing does not wait for the time to pass")
		require.False(t, clock.HasWaiters(), "no timer goes on")
	})
}

func TestUnreadableDecidesWhatTheGenerationBeforeIsAskedFor(t *testing.T) {
	asked := 0
	s := NewSet[Generation](&fakeGeneration{name: "one"}, SetOptions{
		Clock:      clocktesting.NewFakeClock(start),
		Unreadable: func(error) bool { asked++; return false },
	})
	defer s.Close()
	s.swap(&fakeGeneration{name: "two"})
	_, _, err := read(t.Context(), s, "one:v")
	require.EqualError(t, err, "two does not know one")
	require.Equal(t, 1, asked)
}

func TestReadThatComesTooLateForTheGenerationBefore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		one := &fakeGeneration{name: "one"}
		var s *Set[Generation]
		s = NewSet[Generation](one, SetOptions{
			Clock: clocktesting.NewFakeClock(start),
			Unreadable: func(error) bool {
				s.swap(&fakeGeneration{name: "three"}) // one lingers no more
				synctest.Wait()
				return true
			},
		})
		defer s.Close()
		s.swap(&fakeGeneration{name: "two"})
		_, _, err := read(t.Context(), s, "one:v")
		require.EqualError(t, err, "two does not know one")
		require.EqualValues(t, 1, one.closed.Load())
		require.Zero(t, one.late.Load())
	})
}

func TestCloseEndsEverything(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		one := &fakeGeneration{name: "one", inside: func() { <-release }}
		s, _ := newSet(one)
		done := make(chan string)
		go func() { done <- write(t, s, secrets) }()
		synctest.Wait()
		closed := make(chan struct{})
		for range 2 {
			go func() { s.Close(); closed <- struct{}{} }()
		}
		synctest.Wait()
		require.Zero(t, one.closed.Load(), "an operation is inside")

		_, err := s.TransformerForResource(secrets).TransformToStorage(t.Context(), nil, etcdKey)
		require.ErrorIs(t, err, ErrClosed)
		_, _, err = read(t.Context(), s, "one:v")
		require.ErrorIs(t, err, ErrClosed)
		close(release)
		require.Equal(t, "one:v", <-done)
		<-closed
		<-closed
		require.EqualValues(t, 1, one.closed.Load())

		late := &fakeGeneration{name: "late"}
		s.swap(late)
		require.EqualValues(t, 1, late.closed.Load(), "the Set owns what it is given")
		require.Same(t, one, s.Current())
	})
}

func TestFailureWhileClosingKeepsItsOwnError(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s, _ := newSet(&fakeGeneration{name: "one", inside: func() { <-release }})
		failed := make(chan error)
		go func() {
			_, _, err := read(t.Context(), s, "other:v")
			failed <- err
		}()
		synctest.Wait()
		go s.Close()
		synctest.Wait()
		close(release)
		require.EqualError(t, <-failed, "one does not know other")
	})
}

func TestMissingTransformerFailsAndNeverWritesPlaintext(t *testing.T) {
	s, _ := newSet(&fakeGeneration{name: "one"})
	defer s.Close()
	h := s.TransformerForResource(schema.GroupResource{Resource: "none"})
	_, err := h.TransformToStorage(t.Context(), []byte("v"), etcdKey)
	require.ErrorContains(t, err, `no transformer for resource "none"`)
	_, _, err = h.TransformFromStorage(t.Context(), []byte("v"), etcdKey)
	require.ErrorContains(t, err, `no transformer for resource "none"`)
}

func TestPanicInsideAnOperationDoesNotKeepTheGenerationOpen(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		one := &fakeGeneration{name: "one", inside: func() { panic("defect") }}
		s := NewSet[Generation](one, SetOptions{Clock: clocktesting.NewFakeClock(start), Linger: -1})
		defer s.Close()
		require.PanicsWithValue(t, "defect", func() { write(t, s, secrets) })
		s.swap(&fakeGeneration{name: "two"})
		synctest.Wait()
		require.EqualValues(t, 1, one.closed.Load())
	})
}

func TestIdleHandleForgetsTheReplacedGeneration(t *testing.T) {
	s, _ := newSet(&fakeGeneration{name: "one"})
	defer s.Close()
	var idle []*handle
	for _, resource := range []schema.GroupResource{secrets, configMaps, {Resource: "pods"}} {
		idle = append(idle, s.TransformerForResource(resource).(*handle))
	}
	two := &fakeGeneration{name: "two"}
	s.swap(two)
	for _, h := range idle {
		require.Same(t, two, h.bound.Load().Generation, h.resource)
	}
}

func TestLateOperationDoesNotBindAHandleBack(t *testing.T) {
	s, _ := newSet(&fakeGeneration{name: "one"})
	defer s.Close()
	h := s.TransformerForResource(secrets).(*handle)
	old := s.current.Load()
	two := &fakeGeneration{name: "two"}
	s.swap(two)
	require.Same(t, old, h.bindTo(old).generation, "the late operation itself stays where it began")
	require.Same(t, two, h.bound.Load().Generation)
}

func TestOperationsDoNotAllocate(t *testing.T) {
	s := NewSet[Generation](constant{}, SetOptions{})
	defer s.Close()
	h := s.TransformerForResource(secrets)
	ctx, data, dataCtx := t.Context(), []byte("v"), value.Context(etcdKey)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if _, err := h.TransformToStorage(ctx, data, dataCtx); err != nil {
			t.Error(err)
		}
		if _, _, err := h.TransformFromStorage(ctx, data, dataCtx); err != nil {
			t.Error(err)
		}
	}))
}

func BenchmarkHandle(b *testing.B) {
	s := NewSet[Generation](constant{}, SetOptions{})
	defer s.Close()
	h := s.TransformerForResource(secrets)
	ctx, data, dataCtx := b.Context(), []byte("v"), value.Context(etcdKey)
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = h.TransformFromStorage(ctx, data, dataCtx)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _, _ = h.TransformFromStorage(ctx, data, dataCtx)
			}
		})
	})
}

// constant is a generation that costs nothing.
type constant struct{}

func (constant) TransformerForResource(schema.GroupResource) value.Transformer { return constant{} }
func (constant) Close()                                                        {}

func (constant) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	return data, false, nil
}

func (constant) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return data, nil
}
