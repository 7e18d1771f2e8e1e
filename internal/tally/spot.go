package tally

import (
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/storage/value"
)

// A Spot is where an operation counts. One spot does for all the counts of an
// operation.
type Spot uint32

// Visit is one operation on its way through the layers that count it: what
// they are given as a value.Context, and the spot that is its own meanwhile.
// Finding a spot takes longer than counting there, and so it is found once.
type Visit struct {
	value.Context
	spot Spot
	_    [104]byte // up to 128: every visit is written to by another processor
}

// idle are the visits that nobody is on. The pool keeps them by processor, so
// that an operation takes the spot that the one before it had on the same
// processor, with the lines of that spot in its cache.
var idle = sync.Pool{New: func() any { return &Visit{spot: Spot(visits.Add(1))} }}

var visits atomic.Uint32 // that were ever made

// Begin begins a visit with what an operation is given. It allocates only when
// more operations are under way than there were lately.
func Begin(at value.Context) *Visit {
	v := idle.Get().(*Visit)
	v.Context = at
	return v
}

// End ends the visit. Nobody may use it afterwards.
func (v *Visit) End() {
	v.Context = nil
	idle.Put(v)
}

// Spot is where the operation counts.
func (v *Visit) Spot() Spot { return v.spot }

// Move gives the visit another spot. It is for one that finds somebody else at
// its own: it goes to the next until it is alone, and comes back there.
func (v *Visit) Move() { v.spot++ }

// SpotOf is the spot of the visit that at is, or one as by [Pick].
func SpotOf(at value.Context) Spot {
	if v, ok := at.(*Visit); ok {
		return v.spot
	}
	return Pick()
}

// Pick is a spot for what is no visit: mostly that of the last one on the same
// processor.
func Pick() Spot {
	v := idle.Get().(*Visit)
	spot := v.spot
	idle.Put(v)
	return spot
}
