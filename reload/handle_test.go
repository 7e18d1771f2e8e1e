package reload

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Between the moment when an operation finds out which generation is current
// and the moment when it is counted into it, another one may take over, and the
// first be found empty and closed. Here that happens as often as it can: nothing
// but the count stands between a swap and the close.
func TestNoOperationIsInAGenerationThatWasFoundEmpty(t *testing.T) {
	const swaps = 5_000
	s := NewSet(&fakeGeneration{}, SetOptions{Linger: -1})
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
