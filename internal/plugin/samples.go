package plugin

import "sync/atomic"

// Samples are stored values' wrapped DEKs by which a plugin can be tried that is
// only read with: one that it has unwrapped, which it should be able to do again,
// and one that it did not unwrap. Safe for concurrent use.
type Samples[Wrapped any] struct{ good, bad atomic.Pointer[Wrapped] }

// Unwrapped notes that the plugin has unwrapped w.
func (s *Samples[Wrapped]) Unwrapped(w *Wrapped) { s.good.Store(w) }

// Refused notes that the plugin has not unwrapped w.
func (s *Samples[Wrapped]) Refused(w *Wrapped) { s.bad.Store(w) }

// Best is what says most of the plugin; nil if there is nothing.
func (s *Samples[Wrapped]) Best() *Wrapped {
	if good := s.good.Load(); good != nil {
		return good
	}
	return s.bad.Load()
}

// Forget drops w, which says nothing of the plugin.
func (s *Samples[Wrapped]) Forget(w *Wrapped) {
	s.good.CompareAndSwap(w, nil)
	s.bad.CompareAndSwap(w, nil)
}
