package migrate

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 10 * time.Second
	// defaultPatience outlasts the restart of an apiserver.
	defaultPatience = 2 * time.Minute
	// briefPatience is for a question that somebody waits for the answer of.
	briefPatience = 30 * time.Second
	// maxRetryAfter bounds what an apiserver may ask for.
	maxRetryAfter = time.Minute
	// maxBroken is how often a request is tried that the apiserver fails at.
	maxBroken = 5
)

// persistence is how long a request is repeated.
type persistence struct {
	clock    clock.Clock
	patience time.Duration
	// once tells that what the apiserver fails at is not repeated.
	once bool
	// retried, if set, is told of every repetition: why, and for how long now.
	retried func(err error, waited time.Duration)
}

// call repeats a request while the apiserver is away or busy, at the pace that
// it asks for, and a few times when it fails.
func (p persistence) call(ctx context.Context, request func(context.Context) error) error {
	began, backoff, failures := p.clock.Now(), minBackoff, 0
	for {
		err := request(ctx)
		switch kindOf(ctx, err) {
		case stopped:
			return context.Cause(ctx)
		case broken:
			if failures++; p.once || failures == maxBroken {
				return err
			}
		case away:
			if p.clock.Since(began) >= p.patience {
				return &OutageError{err}
			}
		default:
			return err
		}
		if p.retried != nil {
			p.retried(err, p.clock.Since(began))
		}
		delay := backoff
		if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
			delay = max(delay, min(time.Duration(seconds)*time.Second, maxRetryAfter))
		}
		if err := sleep(ctx, p.clock, delay); err != nil {
			return err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func sleep(ctx context.Context, c clock.Clock, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}

// pace lets so many through a second, evenly. It is safe for concurrent use.
type pace struct {
	clock     clock.Clock
	perSecond float64

	mu   sync.Mutex
	next time.Time
}

func (p *pace) wait(ctx context.Context) error {
	if p.perSecond == 0 {
		return ctx.Err()
	}
	p.mu.Lock()
	now := p.clock.Now()
	turn := p.next
	if turn.Before(now) {
		turn = now
	}
	p.next = turn.Add(time.Duration(float64(time.Second) / p.perSecond))
	p.mu.Unlock()
	return sleep(ctx, p.clock, turn.Sub(now))
}
