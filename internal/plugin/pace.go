package plugin

import "time"

const (
	// askBurst is how often a plugin may be asked out of turn in a row. Over any
	// longer time it is once in askEvery.
	askBurst = 5
	askEvery = time.Second
)

// pace bounds how often a plugin is asked: under no behaviour of it more than
// once a second on average. What wakes without bringing news, as a plugin does
// that closes idle connections, wakes less and less often, down to the rate of
// the polls. It is for one goroutine.
type pace struct {
	spent time.Time // a bucket: how far the questions asked are ahead of askEvery
	woken time.Time // when it was last asked because it was woken
	quiet time.Duration
}

// earliest is when the plugin may be asked out of turn.
func (p *pace) earliest(now time.Time) time.Time {
	return later(now, p.spent.Add(-(askBurst-1)*askEvery))
}

// earliestWake is the same for a wake of the connection.
func (p *pace) earliestWake(now time.Time) time.Time {
	return later(p.earliest(now), p.woken.Add(p.quiet))
}

// asked notes that the plugin was asked at now, and whether that brought news.
// poll is the time to the next poll.
func (p *pace) asked(now time.Time, woken, news bool, poll time.Duration) {
	p.spent = later(p.spent, now).Add(askEvery)
	if news {
		p.quiet = 0
	}
	if !woken {
		return
	}
	p.woken = now
	if !news {
		p.quiet = min(max(askEvery, 4*p.quiet), max(askEvery, poll))
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
