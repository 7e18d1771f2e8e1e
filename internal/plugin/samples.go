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

// Best is what says most of the plugin as it is now; nil if there is nothing.
// present reports whether one is under the KEK that it works with, and bad
// whether one counts that was not unwrapped.
func (s *Samples[Wrapped]) Best(present func(*Wrapped) bool, bad bool) *Wrapped {
	good, refused := s.good.Load(), s.bad.Load()
	switch {
	case !bad || refused == nil:
		return good
	case good == nil || !present(good) && present(refused):
		return refused
	}
	return good
}

// Forget drops w, which says nothing of the plugin.
func (s *Samples[Wrapped]) Forget(w *Wrapped) {
	s.good.CompareAndSwap(w, nil)
	s.bad.CompareAndSwap(w, nil)
}

// From takes over the samples of others.
func (s *Samples[Wrapped]) From(other *Samples[Wrapped]) {
	s.good.Store(other.good.Load())
	s.bad.Store(other.bad.Load())
}
