//go:build cgo

package pkcs11

import (
	"slices"
	"sync"
)

// siblings are the sessions of a [Token] that have lines open: the kit opens another one before it
// closes the last. It is safe for concurrent use.
type siblings struct {
	mu  sync.Mutex
	all []*session
}

func (s *siblings) add(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, one)
}

// now are those of which something is left, as of one that is closed while a call of it hangs.
func (s *siblings) now() []*session {
	s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// settle forgets those of which nothing is left.
func (s *siblings) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(one *session) bool { return one.pool.isEmpty() })
}

// late is how many of their calls of the module nobody waits for any more, nor for the lines that one
// opens which is over.
func (s *siblings) late() (n int) {
	for _, one := range s.now() {
		n += int(one.late.Load())
		if one.isOver() {
			n += one.pool.pending()
		}
	}
	return n
}

// giveUp closes what is left of those that are over, for a token that has no more, and reports whether
// that was anything.
func (s *siblings) giveUp() (some bool) {
	for _, one := range s.now() {
		some = one.isOver() && one.pool.giveUp() || some
	}
	return some
}
