package tally

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sums are what Takes give, by bucket.
type sums [buckets]struct {
	n     uint64
	total time.Duration
}

func (s *sums) take(h *Histogram) {
	h.Take(func(n uint64, mean time.Duration) {
		b := &s[bucketOf(mean)]
		b.n += n
		b.total += time.Duration(n) * mean
	})
}

func TestEachDurationIsInOneTake(t *testing.T) {
	const workers, each = 4, 20_000
	h := NewHistogram()
	var got, want sums
	for i := range each {
		d := time.Duration(i) * time.Microsecond
		want[bucketOf(d)].n += workers
		want[bucketOf(d)].total += workers * d
	}
	var counting sync.WaitGroup
	for range workers {
		counting.Go(func() {
			for i := range each {
				h.Observe(Pick(), time.Duration(i)*time.Microsecond)
			}
		})
	}
	for range 100 {
		got.take(h)
	}
	counting.Wait()
	got.take(h)
	for b := range want {
		require.Equal(t, want[b].n, got[b].n, "bucket %d", b)
		require.InEpsilon(t, want[b].total+1, got[b].total+1, 0.001, "bucket %d", b)
	}
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

// A mean that rounding took into another bucket would be counted there.
func TestAMeanStaysInItsBucket(t *testing.T) {
	bound := firstBound
	for b := range buckets - 1 {
		for _, d := range []time.Duration{bound/2 + 1, bound/2 + 2, bound - 1, bound} {
			h := NewHistogram()
			h.Observe(0, d)
			h.Take(func(n uint64, mean time.Duration) {
				require.Equal(t, uint64(1), n)
				require.Equal(t, bucketOf(d), bucketOf(mean), "%v of bucket %d", d, b)
				require.InEpsilon(t, d, mean, 0.0005)
			})
		}
		bound *= 2
	}
}

func TestTheMeanOfEachBucketIsTold(t *testing.T) {
	h := NewHistogram()
	for _, d := range []time.Duration{-time.Second, 4 * time.Microsecond, 6 * time.Microsecond, 8 * time.Microsecond, 30 * time.Microsecond} {
		h.Observe(Pick(), d)
	}
	got := map[time.Duration]uint64{}
	h.Take(func(n uint64, mean time.Duration) { got[mean] = n })
	require.Equal(t, map[time.Duration]uint64{2 * time.Microsecond: 2, 7 * time.Microsecond: 2, 30 * time.Microsecond: 1}, got)
	h.Take(func(uint64, time.Duration) { require.Fail(t, "it was emptied") })
}

// Nobody takes for long, so that what a cell has room for is not enough.
func TestACellThatIsFullOverflowsIntoNothing(t *testing.T) {
	h := NewHistogram()
	h.Observe(0, firstBound)
	fill := h.rows[0].cells[0].Load()
	const most = 1<<23 - 1
	h.rows[0].cells[0].Store(most * fill)
	h.Observe(0, firstBound)
	require.Zero(t, h.rows[0].cells[0].Load(), "spilled")
	h.Observe(0, firstBound)
	var got sums
	got.take(h)
	require.Equal(t, uint64(most+2), got[0].n)
	require.Equal(t, (most+2)*firstBound, got[0].total)

	h.Observe(0, math.MaxInt64)
	longestOne := h.rows[0].cells[buckets-1].Load()
	h.rows[0].cells[buckets-1].Store(most * longestOne)
	h.Observe(0, math.MaxInt64)
	h.Take(func(n uint64, mean time.Duration) {
		require.Equal(t, uint64(most+1), n)
		require.InEpsilon(t, 36*time.Minute, mean, 0.02)
	})
}
