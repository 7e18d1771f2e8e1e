package vault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// keeping keeps a token alive.
type keeping struct {
	clock clock.Clock
	lease lease
	own   bool
	lost  <-chan struct{} // closed when the token was found to be no good
	// renew makes the lease longer.
	renew func(context.Context) (lease, error)
	warn  func(text string, left time.Duration, err error)
}

// soonest is the shortest time between two attempts, and what is too short to begin one.
const soonest = time.Second

var (
	errLost    = errors.New("the token has ended or was revoked")
	errEnds    = errors.New("the token ends, and cannot be made to last")
	errRenewal = errors.New("the token ends, and could not be renewed")
)

// run returns when another token is needed: before this one ends, if a login can give another,
// and when it has ended, if it is from a file. It renews after some two thirds of the
// lease; the time differs from plugin to plugin, so that not all ask at once.
func (k keeping) run(ctx context.Context) error {
	first, l := k.lease.ttl, k.lease
	end := k.clock.Now().Add(l.ttl)
	warn := sync.OnceFunc(func() {
		k.warn("the token of the file ends for good: write another one there before that", l.ttl, nil)
	})
	for {
		if l.ttl == 0 {
			return k.wait(ctx, nil)
		}
		left := end.Sub(k.clock.Now())
		switch {
		case left <= soonest:
			return cmp.Or(k.pause(ctx, left), errRenewal)
		case k.own && (!l.renewable || l.ttl < first/3):
			return cmp.Or(k.pause(ctx, twoThirds(left)), errEnds)
		case !l.renewable:
			warn()
			return cmp.Or(k.pause(ctx, left), errEnds)
		case l.ttl < first/3:
			warn()
		}
		if err := k.pause(ctx, max(twoThirds(left), soonest)); err != nil {
			return err
		}
		next, err := k.renew(ctx)
		switch {
		case err == nil:
			l = next
			end = k.clock.Now().Add(l.ttl)
		case errors.Is(err, kmsplugin.ErrDenied):
			return fmt.Errorf("%w: %w", errLost, err)
		default:
			k.warn("the token could not be renewed", end.Sub(k.clock.Now()), err)
		}
	}
}

// pause waits for some time, or until the token is lost.
func (k keeping) pause(ctx context.Context, d time.Duration) error {
	timer := k.clock.NewTimer(d)
	defer timer.Stop()
	return k.wait(ctx, timer.C())
}

func (k keeping) wait(ctx context.Context, until <-chan time.Time) error {
	select {
	case <-until:
		return nil
	case <-k.lost:
		return errLost
	case <-ctx.Done():
		return ctx.Err()
	}
}

// twoThirds is two thirds of d, or up to a tenth of it less.
func twoThirds(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (2.0/3 - rand.Float64()/10))
}
