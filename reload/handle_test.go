package reload

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/tally"
)

// Between the moment when an operation finds out which generation is current
// and the moment when it is counted into it, another one may take over, and the
// first be found empty and closed. Here that happens as often as it can: nothing
// but the count stands between a swap and the close.
func TestNoOperationIsInAGenerationThatWasFoundEmpty(t *testing.T) {
	const swaps = 5_000
	s := NewSet[Generation](&fakeGeneration{}, SetOptions{Linger: -1})
	h := s.TransformerForResource(secrets)
	var ended atomic.Bool
	var operations sync.WaitGroup
	for range max(2, runtime.GOMAXPROCS(0)) {
		operations.Go(func() {
			for !ended.Load() {
				_, _ = h.TransformToStorage(t.Context(), nil, etcdKey)
			}
		})
	}
	closed := make([]fakeGeneration, swaps)
	for i := range closed {
		old := s.current.Swap(s.newGeneration(&closed[i]))
		for !old.empty() {
			runtime.Gosched()
		}
		old.Close()
	}
	ended.Store(true)
	operations.Wait()
	s.Close()
	for i := range closed {
		require.Zero(t, closed[i].late.Load(), "of generation %d", i)
	}
}

// countHandles is how many handles are remembered.
func (s *set) countHandles() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.handles)
}

func TestHandlesThatNobodyHoldsAreForgotten(t *testing.T) {
	s, _ := newSet(&fakeGeneration{name: "one"})
	defer s.Close()
	held := s.TransformerForResource(secrets)
	for i := range 1000 {
		write(t, s, schema.GroupResource{Group: "example.com", Resource: fmt.Sprint("r", i)})
	}
	s.swap(&fakeGeneration{name: "two"})
	require.Eventually(t, func() bool {
		runtime.GC()
		return s.countHandles() == 1
	}, 10*time.Second, time.Millisecond)
	require.Same(t, held, s.TransformerForResource(secrets))
	require.Equal(t, "two:v", write(t, s, schema.GroupResource{Group: "example.com", Resource: "r1"}), "it came back")
}

// The cleanup of a handle may come when its resource has another one.
func TestAHandleIsNotForgottenForAnEarlierOne(t *testing.T) {
	s, _ := newSet(&fakeGeneration{name: "one"})
	defer s.Close()
	held := s.TransformerForResource(secrets)
	s.forget(secrets)
	require.Same(t, held, s.TransformerForResource(secrets))
}

// Whoever loaded the current generation may come to be counted when that was
// replaced, drained and closed.
func TestAReplacedGenerationIsEnteredNoMore(t *testing.T) {
	s := NewSet[Generation](&fakeGeneration{name: "one"}, SetOptions{Clock: clocktesting.NewFakeClock(start), Linger: -1})
	defer s.Close()
	v := tally.Begin(etcdKey)
	defer v.End()
	one := s.current.Load()
	inside := s.enter(one, v)
	require.NotNil(t, inside)
	s.swap(&fakeGeneration{name: "two"})
	require.Nil(t, s.enter(one, v))
	require.False(t, one.empty(), "the one inside still is")
	one.leave(inside)
	require.True(t, one.empty())
}

// Two processors that count in the same slot would wait for each other as long
// as they do.
func TestOfTwoInASlotOneMovesOn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	f := newInflight()
	require.Len(t, f.slots, 4)
	first, second := tally.Begin(etcdKey), tally.Begin(etcdKey)
	for second.Spot()%4 != first.Spot()%4 {
		second.Move()
	}
	slots := []*slot{f.enter(first), f.enter(second)}
	require.Same(t, slots[0], slots[1])
	require.NotEqual(t, first.Spot()%4, second.Spot()%4)
	f.leave(slots[0])
	f.leave(slots[1])
	require.True(t, f.empty(), "each leaves where it entered")
	require.NotSame(t, f.enter(first), f.enter(second))
}
