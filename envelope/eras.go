package envelope

import "sync/atomic"

// eras count how often what a plugin had wrapped was called in question: it was not
// unwrapped, though the plugin unwraps what is wrapped now. What is of an earlier era
// than now's is stale until the plugin unwraps it again, which makes it of the present
// one. What is of an earlier one than that of the last loss is lost: the plugin has
// said that it no longer has the KEK, and may remember some of what that wrapped.
type eras struct{ now, lost atomic.Uint32 }

// isOver reports whether a DEK is in question, or lost: memory may be the only place
// for it.
func (e *eras) isOver(d *knownDEK) bool { return d.era.Load() != e.now.Load() }

// isLost reports whether the KEK of a DEK is known to be lost.
func (e *eras) isLost(d *knownDEK) bool { return d.era.Load() < e.lost.Load() }

// unwrapped notes that the plugin has unwrapped a DEK in an era.
func (e *eras) unwrapped(d *knownDEK, era uint32) {
	before := d.era.Load()
	if before < e.lost.Load() {
		return
	}
	d.refusals.Store(0)
	if before < era {
		d.era.CompareAndSwap(before, era)
	}
}
