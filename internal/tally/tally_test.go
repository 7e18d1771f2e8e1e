package tally

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNothingIsLost(t *testing.T) {
	const workers, each = 8, 10_000
	c, h := NewCounter(), NewHistogram()
	var taken, observed uint64
	take := func() {
		taken += c.Take()
		h.Take(func(n uint64, _ time.Duration) { observed += n })
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				at := Pick()
				c.Add(at)
				h.Observe(at, time.Duration(i)*time.Microsecond)
			}
		})
	}
	for range 100 {
		take()
	}
	wg.Wait()
	take()
	require.Equal(t, uint64(workers*each), c.Load())
	require.Equal(t, uint64(workers*each), taken)
	require.Equal(t, uint64(workers*each), observed)
}

func TestBucketsEndWithTheirBound(t *testing.T) {
	require.Equal(t, 0, bucketOf(-1))
	require.Equal(t, 0, bucketOf(0))
	bound := firstBound
	for b := range buckets - 1 {
		require.Equal(t, b, bucketOf(bound), "%v", bound)
		require.Equal(t, b+1, bucketOf(bound+1), "%v", bound+1)
		bound *= 2
	}
	require.Equal(t, buckets-1, bucketOf(24*time.Hour))
}

func TestAMeanStaysInItsBucket(t *testing.T) {
	h := NewHistogram()
	for _, d := range []time.Duration{6 * time.Microsecond, 8 * time.Microsecond, 30 * time.Microsecond, time.Hour} {
		h.Observe(Pick(), d)
	}
	got := map[time.Duration]uint64{}
	h.Take(func(n uint64, mean time.Duration) { got[mean] = n })
	require.Equal(t, map[time.Duration]uint64{7 * time.Microsecond: 2, 30 * time.Microsecond: 1, time.Hour: 1}, got)
	h.Take(func(uint64, time.Duration) { require.Fail(t, "it was emptied") })
	require.Equal(t, 5001*time.Nanosecond, clamp(0, 1))
	require.Equal(t, 10*time.Microsecond, clamp(time.Hour, 1))
}
