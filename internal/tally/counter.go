// Package tally counts what many processors do at once. A count that all of
// them share makes each wait for the others' cache line; so one that is busy
// lies in several lines, an operation counts in that of its spot, and whoever
// reads adds them up.
package tally

import (
	"math/bits"
	"runtime"
	"sync/atomic"
)

// maxLines bounds the memory of a count on machines of many processors.
const maxLines = 64

// Lines is how many cache lines a busy count should lie in: one for each
// processor, up to a power of two, so that a mask of a [Spot] picks one, and at
// most 64. It takes a lock of the runtime: call it where something is made.
func Lines() int { return min(1<<bits.Len(uint(runtime.GOMAXPROCS(0)-1)), maxLines) }

// line is 128 bytes because processors fetch lines of 64 bytes in pairs.
type line struct {
	n atomic.Uint64
	_ [120]byte
}

// busy is how many a counter counts in one place before it takes lines of its
// own. Most counters of a server, such as those of a custom resource of which
// there are few objects, never come so far.
const busy = 1 << 16

// Counter counts up. The zero value is a counter at zero, of 24 bytes; one that
// has counted 65,536 takes another 128 bytes for each processor, 8 KiB at most.
// Safe for concurrent use.
type Counter struct {
	first atomic.Uint64 // until it is busy
	lines atomic.Pointer[[]line]
	taken atomic.Uint64 // by Take
}

// NewCounter makes a counter at zero.
func NewCounter() *Counter { return &Counter{} }

// Add counts one at a spot.
func (c *Counter) Add(at Spot) {
	if lines := c.lines.Load(); lines != nil {
		(*lines)[int(at)&(len(*lines)-1)].n.Add(1)
		return
	}
	c.addFirst()
}

func (c *Counter) addFirst() {
	if c.first.Add(1) == busy {
		lines := make([]line, Lines())
		c.lines.Store(&lines)
	}
}

// Load is the count so far, which never is less than it was before. What is
// counted meanwhile may be in it or not.
func (c *Counter) Load() uint64 {
	sum := c.first.Load()
	if lines := c.lines.Load(); lines != nil {
		for i := range *lines {
			sum += (*lines)[i].n.Load()
		}
	}
	return sum
}

// Take is what was counted since the last Take. Of several at once each count is
// in one.
func (c *Counter) Take() uint64 {
	for {
		before := c.taken.Load()
		if now := c.Load(); c.taken.CompareAndSwap(before, now) {
			return now - before
		}
	}
}
