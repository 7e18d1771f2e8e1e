package kmsplugin

import "k8s.io/utils/clock"

// WithClock sets the clock that measures the stop timeout.
func WithClock(clock clock.Clock) Option { return func(s *settings) { s.clock = clock } }

// Spoken is how many connections have sent something.
func (s *Server) Spoken() (n int) {
	s.socket.mu.Lock()
	defer s.socket.mu.Unlock()
	for c := range s.socket.open {
		if c.spoke.Load() {
			n++
		}
	}
	return n
}
