package plugin

import "sync/atomic"

// Samples are stored values' wrapped DEKs by which a plugin can be tried: some that it
// has unwrapped, which it should be able to do again, and one that it did not unwrap.
// Safe for concurrent use.
type Samples[Wrapped any] struct{ present, former, bad atomic.Pointer[Wrapped] }

// Unwrapped notes that the plugin has unwrapped w, which is or is not under the KEK
// that it works with.
func (s *Samples[Wrapped]) Unwrapped(w *Wrapped, present bool) {
	if present {
		s.present.Store(w)
		return
	}
	s.former.Store(w)
}

// Refused notes that the plugin has not unwrapped w.
func (s *Samples[Wrapped]) Refused(w *Wrapped) { s.bad.Store(w) }

// Good is one that the plugin has unwrapped, and that is present: under the KEK that
// it works with now. It is nil if there is none.
func (s *Samples[Wrapped]) Good(present func(*Wrapped) bool) *Wrapped {
	for _, w := range []*Wrapped{s.present.Load(), s.former.Load()} {
		if w != nil && present(w) {
			return w
		}
	}
	return nil
}

// IsGood reports whether w is one that the plugin has unwrapped.
func (s *Samples[Wrapped]) IsGood(w *Wrapped) bool {
	return w != nil && (w == s.present.Load() || w == s.former.Load())
}

// Best is what says most of the plugin as it is now; nil if there is nothing.
func (s *Samples[Wrapped]) Best(present func(*Wrapped) bool) *Wrapped {
	if good := s.Good(present); good != nil {
		return good
	}
	bad := s.bad.Load()
	if bad != nil && present(bad) {
		return bad
	}
	if good := s.Good(func(*Wrapped) bool { return true }); good != nil {
		return good
	}
	return bad
}

// Clear drops all.
func (s *Samples[Wrapped]) Clear() {
	s.present.Store(nil)
	s.former.Store(nil)
	s.bad.Store(nil)
}

// Forget drops w, which says nothing of the plugin.
func (s *Samples[Wrapped]) Forget(w *Wrapped) {
	if w == nil {
		return
	}
	s.present.CompareAndSwap(w, nil)
	s.former.CompareAndSwap(w, nil)
	s.bad.CompareAndSwap(w, nil)
}
