package tally

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// buckets are those of kube-apiserver's transformation_duration_seconds: up to
// 5 µs, and each of the next 24 up to twice the one before; the last has no end.
const (
	buckets    = 26
	firstBound = 5 * time.Microsecond
)

// bucketOf is the first bucket whose bound is not below d.
func bucketOf(d time.Duration) int {
	if d <= firstBound {
		return 0
	}
	return min(bits.Len64(uint64((d-1)/firstBound)), buckets-1)
}

// A cell holds the durations of one bucket: their number in its upper 24 bits,
// and below that their sum in units of 2^bucket nanoseconds. A duration is at
// most 5000 of its bucket's units, and longest units in the last bucket, so that
// the sum cannot run into the number before the cell is full.
type cell = atomic.Uint64

const (
	sumBits = 40
	one     = 1 << sumBits
	full    = 1 << 63 // half of what fits, so that those who count meanwhile fit too
	longest = 1 << 16 // 36 minutes, in the last bucket
)

// row is the cells of one spot, in three times 128 bytes less the end, which
// nobody writes.
type row struct {
	cells [buckets]cell
	_     [48]byte // up to a multiple of 128
}

// Histogram counts durations. Safe for concurrent use.
type Histogram struct {
	rows []row

	mu      sync.Mutex
	spilled [buckets]durations // out of cells that were full
}

// durations are some durations of one bucket, and their sum in its units.
type durations struct{ n, sum uint64 }

// NewHistogram makes an empty histogram, of 256 bytes for each processor and at
// most 16 KiB.
func NewHistogram() *Histogram { return &Histogram{rows: make([]row, Lines())} }

// Observe counts a duration at a spot. Of one beyond 36 minutes it notes that
// long.
func (h *Histogram) Observe(at Spot, d time.Duration) {
	bucket := bucketOf(d)
	c := &h.rows[int(at)&(len(h.rows)-1)].cells[bucket]
	if c.Add(one+min(uint64(max(d, 0))>>bucket, longest)) >= full {
		h.spill(c, bucket)
	}
}

// spill empties a cell before it overflows.
func (h *Histogram) spill(c *cell, bucket int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spilled[bucket].empty(c)
}

// empty adds what is in a cell, and leaves nothing in it.
func (d *durations) empty(c *cell) {
	v := c.Swap(0)
	d.n += v >> sumBits
	d.sum += v & (one - 1)
}

// Take empties the histogram into observe, called for each bucket with how many
// durations were in it and their mean. Each duration is in one Take.
func (h *Histogram) Take(observe func(n uint64, mean time.Duration)) {
	for bucket, d := range h.take() {
		if d.n > 0 {
			observe(d.n, clamp(time.Duration(d.sum/d.n)<<bucket, bucket))
		}
	}
}

func (h *Histogram) take() [buckets]durations {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.spilled
	h.spilled = [buckets]durations{}
	for i := range h.rows {
		for bucket := range all {
			all[bucket].empty(&h.rows[i].cells[bucket])
		}
	}
	return all
}

// clamp keeps a mean within its bucket, out of which the units may have rounded
// it.
func clamp(mean time.Duration, bucket int) time.Duration {
	if bucket == 0 {
		return mean
	}
	return max(mean, firstBound<<(bucket-1)+1)
}
