// Package tally counts what many processors do at once. A count that all of
// them share makes each wait for the others' cache line; so a count here lies
// in several lines, an operation takes any of them, and whoever reads adds them
// up.
package tally

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
)

// A Spot is where an operation counts. One spot does for all the counts of an
// operation.
type Spot uint32

// Pick picks a spot. The randomness only spreads the load, so it need not be
// handed in; the runtime keeps it per processor, without a lock.
func Pick() Spot { return Spot(rand.Uint32()) }

// lines is how many cache lines a count lies in: several for each processor, so
// that two seldom pick the same, and a power of two, so that a mask picks one.
// There are no more than 64, for the sake of memory.
func lines() int { return min(1<<bits.Len(uint(4*runtime.GOMAXPROCS(0)-1)), 64) }

// line is 128 bytes because processors fetch lines of 64 bytes in pairs.
type line struct {
	n atomic.Uint64
	_ [120]byte
}

// Counter counts up. Safe for concurrent use.
type Counter struct {
	lines []line
	taken atomic.Uint64 // by Take
}

// NewCounter makes a counter at zero; it takes some KiB.
func NewCounter() *Counter { return &Counter{lines: make([]line, lines())} }

// Add counts one at a spot.
func (c *Counter) Add(at Spot) { c.lines[int(at)&(len(c.lines)-1)].n.Add(1) }

// Load is the count so far. What is counted meanwhile may be in it or not.
func (c *Counter) Load() uint64 {
	var sum uint64
	for i := range c.lines {
		sum += c.lines[i].n.Load()
	}
	return sum
}

// Take is what was counted since the last Take.
func (c *Counter) Take() uint64 {
	now := c.Load()
	return now - c.taken.Swap(now)
}

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

// durations are the durations in one bucket.
type durations struct{ n, sum atomic.Uint64 }

// Histogram counts durations. Safe for concurrent use.
type Histogram struct{ lines []bucketLine }

type bucketLine struct {
	durations [buckets]durations
	_         [96]byte // up to a multiple of 128
}

// NewHistogram makes an empty histogram; it takes some KiB.
func NewHistogram() *Histogram { return &Histogram{lines: make([]bucketLine, lines())} }

// Observe counts a duration at a spot.
func (h *Histogram) Observe(at Spot, d time.Duration) {
	b := &h.lines[int(at)&(len(h.lines)-1)].durations[bucketOf(d)]
	b.sum.Add(uint64(max(d, 0)))
	b.n.Add(1)
}

// Take empties the histogram into observe, called for each bucket with how many
// durations were in it and their mean. A duration counted meanwhile is in this
// Take or the next; its length may be in the other one.
func (h *Histogram) Take(observe func(n uint64, mean time.Duration)) {
	for bucket := range buckets {
		var n, sum uint64
		for i := range h.lines {
			b := &h.lines[i].durations[bucket]
			n += b.n.Swap(0)
			sum += b.sum.Swap(0)
		}
		if n > 0 {
			observe(n, clamp(time.Duration(sum/n), bucket))
		}
	}
}

// clamp keeps a mean within its bucket.
func clamp(mean time.Duration, bucket int) time.Duration {
	lower, upper := time.Duration(0), firstBound
	if bucket > 0 {
		lower, upper = firstBound<<(bucket-1)+1, firstBound<<bucket
	}
	if bucket == buckets-1 {
		return max(mean, lower)
	}
	return min(max(mean, lower), upper)
}
