package plugin

import "sync/atomic"

// Samples are stored values' wrapped DEKs by which a plugin can be tried: one that
// it has unwrapped, which it should be able to do again, and one that it did not
// unwrap. Safe for concurrent use.
type Samples[Wrapped any] struct{ good, bad atomic.Pointer[Wrapped] }

// Unwrapped notes that the plugin has unwrapped w.
func (s *Samples[Wrapped]) Unwrapped(w *Wrapped) { s.good.Store(w) }

// Refused notes that the plugin has not unwrapped w.
func (s *Samples[Wrapped]) Refused(w *Wrapped) { s.bad.Store(w) }

// Good is one that the plugin has unwrapped; nil if there is none.
func (s *Samples[Wrapped]) Good() *Wrapped { return s.good.Load() }

// Best is what says most of the plugin as it is now; nil if there is nothing.
// present reports whether one is under the KEK that it works with.
func (s *Samples[Wrapped]) Best(present func(*Wrapped) bool) *Wrapped {
	good, bad := s.good.Load(), s.bad.Load()
	if good == nil || bad != nil && !present(good) && present(bad) {
		return bad
	}
	return good
}

// Clear drops both.
func (s *Samples[Wrapped]) Clear() {
	s.good.Store(nil)
	s.bad.Store(nil)
}

// Forget drops w, which says nothing of the plugin.
func (s *Samples[Wrapped]) Forget(w *Wrapped) {
	if w == nil {
		return
	}
	s.good.CompareAndSwap(w, nil)
	s.bad.CompareAndSwap(w, nil)
}
