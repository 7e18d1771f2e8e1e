package reload

import (
	"sync/atomic"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/tally"
)

// inflight counts the operations inside one generation. The count is spread
// over slots, and an operation takes that of its spot, so that processors do not
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

func newInflight() *inflight {
	return &inflight{
		slots: make([]slot, tally.Lines()),
		left:  make(chan struct{}, 1),
	}
}

// enter counts a visit in.
func (f *inflight) enter(v *tally.Visit) *slot {
	s := &f.slots[int(v.Spot())&(len(f.slots)-1)]
	if s.operations.Add(1) > 1 {
		v.Move() // two processors would go on waiting for each other
	}
	return s
}

func (f *inflight) leave(s *slot) {
	if s.operations.Add(-1) == 0 && f.draining.Load() {
		f.tell()
	}
}

func (f *inflight) tell() {
	select {
	case f.left <- struct{}{}:
	default:
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
