package tally

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Some count across the moment when a counter takes lines of its own, others
// take what was counted meanwhile.
func TestEachCountIsInOneTake(t *testing.T) {
	const workers, takers, each = 2, 4, 4 * busy
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers + takers))
	var c Counter
	var counting, taking sync.WaitGroup
	var ended atomic.Bool
	for range workers {
		counting.Go(func() {
			for range each {
				c.Add(Pick())
			}
		})
	}
	taken := make([]uint64, takers)
	for i := range taken {
		taking.Go(func() {
			for !ended.Load() {
				n := c.Take()
				if taken[i] += n; n > workers*each {
					t.Errorf("took %d of %d", n, workers*each)
					return
				}
			}
		})
	}
	counting.Wait()
	ended.Store(true)
	taking.Wait()
	require.Equal(t, uint64(workers*each), c.Load())
	sum := c.Take()
	for _, n := range taken {
		sum += n
	}
	require.Equal(t, uint64(workers*each), sum)
	require.Zero(t, c.Take())
}

func TestACountNeverBecomesLess(t *testing.T) {
	var c Counter
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 * busy {
			c.Add(Pick())
		}
	}()
	for last := uint64(0); last < 2*busy; {
		n := c.Load()
		require.GreaterOrEqual(t, n, last)
		last = n
		runtime.Gosched()
	}
	<-done
}

func TestACounterTakesLinesWhenItIsBusy(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	c := NewCounter()
	for range busy - 1 {
		c.Add(1)
	}
	require.Nil(t, c.lines.Load())
	c.Add(1)
	require.Len(t, *c.lines.Load(), 4)
	for spot := range Spot(8) {
		c.Add(spot)
	}
	for i := range 4 {
		require.Equal(t, uint64(2), (*c.lines.Load())[i].n.Load(), "of two spots each")
	}
	require.Equal(t, uint64(busy+8), c.Load())
}

func TestThereIsALineForEachProcessorUpTo64(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for procs, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 16: 16, 33: 64, 64: 64, 200: 64} {
		runtime.GOMAXPROCS(procs)
		require.Equal(t, want, Lines(), "%d processors", procs)
	}
}
