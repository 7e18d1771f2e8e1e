package vault

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/bubble"
	"github.com/kube-atrest/atrest/kmsplugin"
)

// kept runs what keeps a token alive by a clock that goes on when all wait, and returns how
// long that was.
func kept(t *testing.T, k keeping, test func(t *testing.T, run func() (time.Duration, error))) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		k.clock = clock.RealClock{}
		if k.warn == nil {
			k.warn = func(string, time.Duration, error) {}
		}
		test(t, func() (time.Duration, error) {
			began := time.Now()
			err := k.run(t.Context())
			return time.Since(began), err
		})
	})
}

func TestATokenIsRenewedAfterTwoThirdsOfItsTime(t *testing.T) {
	var at []time.Time
	k := keeping{lease: lease{time.Hour, true}, own: true}
	k.renew = func(context.Context) (lease, error) {
		if at = append(at, time.Now()); len(at) == 100 {
			return lease{}, kmsplugin.ErrDenied
		}
		return lease{time.Hour, true}, nil
	}
	kept(t, k, func(t *testing.T, run func() (time.Duration, error)) {
		at = []time.Time{time.Now()}
		_, err := run()
		require.ErrorIs(t, err, errLost)
		different := map[time.Duration]bool{}
		for i := range at[1:] {
			waited := at[i+1].Sub(at[i])
			require.LessOrEqual(t, waited, 40*time.Minute)
			require.GreaterOrEqual(t, waited, 34*time.Minute)
			different[waited] = true
		}
		require.Greater(t, len(different), 50, "not all plugins ask at once")
	})
}

func TestARenewalThatFailsIsTriedUntilTheTokenEnds(t *testing.T) {
	tries, warned := 0, 0
	k := keeping{
		lease: lease{time.Hour, true}, own: true,
		renew: func(context.Context) (lease, error) {
			tries++
			return lease{}, fmt.Errorf("sealed: %w", kmsplugin.ErrUnavailable)
		},
		warn: func(string, time.Duration, error) { warned++ },
	}
	kept(t, k, func(t *testing.T, run func() (time.Duration, error)) {
		took, err := run()
		require.ErrorIs(t, err, errRenewal)
		require.InDelta(t, time.Hour, took, float64(2*time.Second))
		require.Greater(t, tries, 5)
		require.Less(t, tries, 50)
		require.Equal(t, tries, warned)
	})
}

func TestALoginIsMadeAnewBeforeItsTokenEndsForGood(t *testing.T) {
	most := 3 * time.Hour
	for name, k := range map[string]keeping{
		"cannot be renewed": {lease: lease{most, false}, own: true},
		"near its maximum":  {lease: lease{time.Hour, true}, own: true},
	} {
		t.Run(name, func(t *testing.T) {
			var began time.Time
			k.renew = func(context.Context) (lease, error) {
				return lease{min(time.Hour, most-time.Since(began)), true}, nil
			}
			kept(t, k, func(t *testing.T, run func() (time.Duration, error)) {
				began = time.Now()
				took, err := run()
				require.ErrorIs(t, err, errEnds)
				require.Less(t, took, most)
				require.Greater(t, took, most/2)
			})
		})
	}
}

func TestATokenOfAFileIsKeptToItsEnd(t *testing.T) {
	for name, k := range map[string]keeping{
		"cannot be renewed": {lease: lease{3 * time.Hour, false}},
		"near its maximum":  {lease: lease{time.Hour, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var began time.Time
			warned := 0
			k.renew = func(context.Context) (lease, error) {
				return lease{min(time.Hour, 3*time.Hour-time.Since(began)), true}, nil
			}
			k.warn = func(string, time.Duration, error) { warned++ }
			kept(t, k, func(t *testing.T, run func() (time.Duration, error)) {
				began = time.Now()
				took, err := run()
				require.Error(t, err)
				require.InDelta(t, 3*time.Hour, took, float64(2*time.Second))
				require.Equal(t, 1, warned)
			})
		})
	}
}

func TestATokenForEverIsLeftAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		lost, began := make(chan struct{}), time.Now()
		time.AfterFunc(1000*time.Hour, func() { close(lost) })
		require.ErrorIs(t, keeping{clock: clock.RealClock{}, lost: lost}.run(t.Context()), errLost)
		require.Equal(t, 1000*time.Hour, time.Since(began))
	})
}

func TestAVeryShortTokenDoesNotMakeItHurry(t *testing.T) {
	k := keeping{lease: lease{time.Second, true}, own: true}
	kept(t, k, func(t *testing.T, run func() (time.Duration, error)) {
		took, err := run()
		require.True(t, errors.Is(err, errRenewal))
		require.GreaterOrEqual(t, took, time.Second)
	})
}
