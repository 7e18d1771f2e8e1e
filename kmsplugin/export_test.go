package kmsplugin

import "k8s.io/utils/clock"

// WithClock sets the clock that measures the stop timeout.
func WithClock(clock clock.Clock) Option { return func(s *settings) { s.clock = clock } }
