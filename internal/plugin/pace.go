package plugin

import "time"

const (
	// askBurst is how often a plugin may be asked out of turn in a row. Over any
	// longer time it is once in askEvery.
	askBurst = 5
	askEvery = time.Second
)

// pace bounds how often a plugin is asked: under no behaviour of it more than
// once a second on average. It is for one goroutine.
type pace struct {
	spent time.Time // a bucket: how far the questions asked are ahead of askEvery
}

// earliest is when the plugin may be asked out of turn.
func (p *pace) earliest(now time.Time) time.Time {
	return later(now, p.spent.Add(-(askBurst-1)*askEvery))
}

// asked notes that the plugin was asked at now.
func (p *pace) asked(now time.Time) { p.spent = later(p.spent, now).Add(askEvery) }

// wakes are the signals of one kind that it is worth asking. Those that bring no
// news, as of a plugin that closes idle connections, are heard less and less
// often, down to the rate of the polls. It is for one goroutine.
type wakes struct {
	heard time.Time // the last one
	quiet time.Duration
}

// earliest is when the next may be heard.
func (w *wakes) earliest(now time.Time) time.Time { return later(now, w.heard.Add(w.quiet)) }

// brought notes whether the one that was heard at now brought news. poll is the
// time to the next poll.
func (w *wakes) brought(now time.Time, news bool, poll time.Duration) {
	w.heard = now
	if news {
		w.quiet = 0
		return
	}
	w.quiet = min(max(askEvery, 4*w.quiet), max(askEvery, poll))
}

// Earlier is the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
