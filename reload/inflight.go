package reload

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"k8s.io/utils/clock"
)

// inflight counts the operations inside one generation. The count is spread
// over slots, and an operation takes any of them, so that processors seldom
// wait for each other's cache line.
type inflight struct {
	slots    []slot
	draining atomic.Bool
	left     chan struct{} // a token: a slot came to zero while draining
}

type slot struct {
	operations atomic.Int64
	_          [120]byte // processors fetch lines of 64 bytes in pairs
}

// slotsPerProcessor keeps two operations out of the same slot, mostly.
const slotsPerProcessor = 4

func newInflight() *inflight {
	atLeast := uint(slotsPerProcessor * runtime.GOMAXPROCS(0))
	return &inflight{
		slots: make([]slot, 1<<bits.Len(atLeast-1)), // a power of two, so that a mask picks one
		left:  make(chan struct{}, 1),
	}
}

// enter counts an operation in. The randomness only spreads the load, so it
// need not be handed in; the runtime keeps it per processor, without a lock.
func (f *inflight) enter() *slot {
	s := &f.slots[int(rand.Uint32())&(len(f.slots)-1)]
	s.operations.Add(1)
	return s
}

func (f *inflight) leave(s *slot) {
	if s.operations.Add(-1) == 0 && f.draining.Load() {
		select {
		case f.left <- struct{}{}:
		default:
		}
	}
}

// drain waits until no operation is inside, or until timeout fires. It is
// called when operations that still come will see that they are late, and
// leave at once.
func (f *inflight) drain(timeout clock.Timer) {
	f.draining.Store(true)
	for !f.empty() {
		select {
		case <-f.left:
		case <-timeout.C():
			return
		}
	}
}

func (f *inflight) empty() bool {
	for i := range f.slots {
		if f.slots[i].operations.Load() != 0 {
			return false
		}
	}
	return true
}
