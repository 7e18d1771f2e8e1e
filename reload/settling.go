package reload

import "time"

// settling decides when what is seen of the file is what its writer meant it
// to be.
type settling struct {
	// announced is how long the file must be still after an event, and
	// unannounced if no event told of its change.
	announced, unannounced time.Duration
	// patience is how long an outcome must last to count if the file is not
	// still, is open for writing, or cannot be read at all.
	patience time.Duration

	last  look
	first time.Time // when last's outcome was seen first
	still time.Time // since when nothing is known to have happened to the file
	event time.Time // when the last event came
}

// saw takes in a look, and whether an event came before it. It returns how long
// to wait until the next look; zero if this one counts.
func (s *settling) saw(l look, event bool, now time.Time) time.Duration {
	if event {
		s.event = now
	}
	if !l.sameOutcome(s.last) {
		s.first = now
	}
	if event || !l.sameOutcome(s.last) || !l.unmoved(s.last) {
		s.still = now
	}
	s.last = l
	s.last.content = nil // keys are not kept longer than needed
	return max(0, s.wait(now))
}

func (s *settling) wait(now time.Time) time.Duration {
	lasting := s.patience - now.Sub(s.first)
	if s.last.err != nil {
		return lasting // a file that is about to be written again is no failure
	}
	quiet := s.need(now) - now.Sub(s.still)
	if s.last.writing {
		quiet = max(quiet, s.announced) // no event tells when it is closed
	}
	return min(quiet, lasting)
}

func (s *settling) need(now time.Time) time.Duration {
	if now.Sub(s.event) <= s.unannounced {
		return s.announced
	}
	return s.unannounced
}
