package reload

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Each worker writes on one handle and reads on another, while generations are
// swapped: it must never see a generation that is closed, fail, or see an
// older generation than before, on whichever handle.
func TestThousandSwapsUnderLoad(t *testing.T) {
	const swaps, workers, resources = 1000, 8, 50
	before := runtime.NumGoroutine()
	generations := make([]*fakeGeneration, swaps+1)
	for i := range generations {
		generations[i] = &fakeGeneration{name: strconv.Itoa(i), readsAll: true}
	}
	s := NewSet[Generation](generations[0], SetOptions{})

	ctx, stop := context.WithCancel(t.Context())
	var operations atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			last := 0
			for i := w; ctx.Err() == nil; i++ {
				seen, err := roundTrip(s, i%resources)
				if err != nil || seen < last {
					t.Errorf("saw generation %d after %d: %v", seen, last, err)
					return
				}
				last = seen
				operations.Add(2)
				runtime.Gosched()
			}
		})
	}
	peak := 0
	for _, g := range generations[1:] {
		wait := operations.Load() + 100
		s.swap(g)
		for operations.Load() < wait && !t.Failed() {
			runtime.Gosched() // some operations in each generation
		}
		peak = max(peak, runtime.NumGoroutine()-before-workers)
	}
	stop()
	wg.Wait()
	s.Close()

	for _, g := range generations {
		require.EqualValues(t, 1, g.closed.Load(), "generation %s", g.name)
		require.Zero(t, g.late.Load(), "generation %s", g.name)
	}
	const own = 1 // Eventually asks from a goroutine
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+own }, 10*time.Second, 10*time.Millisecond)
	t.Logf("%d operations during %d swaps, at most %d goroutines of the set", operations.Load(), swaps, peak)
}

// roundTrip returns the generation that wrote.
func roundTrip(s *Set[Generation], i int) (int, error) {
	name := func(i int) schema.GroupResource { return schema.GroupResource{Resource: fmt.Sprint("r", i)} }
	stored, err := s.TransformerForResource(name(i)).TransformToStorage(context.Background(), []byte("v"), etcdKey)
	if err != nil {
		return 0, err
	}
	generation, _, _ := strings.Cut(string(stored), ":")
	seen, err := strconv.Atoi(generation)
	if err != nil {
		return 0, err
	}
	if _, _, err = s.TransformerForResource(name(i+1)).TransformFromStorage(context.Background(), stored, etcdKey); err != nil {
		return seen, err
	}
	return seen, nil
}
