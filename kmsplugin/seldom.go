package kmsplugin

import (
	"sync"
	"time"
)

// seldom is for something that anybody can have happen as often as they like: it is told of once
// in [reminder].
type seldom struct {
	mu    sync.Mutex
	told  time.Time
	times int // since then
}

// now counts one more, and returns how many there were since it was last told of, or 0 while
// that is not to be told.
func (s *seldom) now(now time.Time) (times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times++
	if !s.told.IsZero() && now.Sub(s.told) < reminder {
		return 0
	}
	times, s.told, s.times = s.times, now, 0
	return times
}
