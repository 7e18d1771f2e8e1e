//go:build cgo

package pkcs11

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	cryptoki "github.com/miekg/pkcs11"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// stepping is a clock that goes on when it is told to, and whose timers run.
type stepping struct {
	clock.RealClock
	passed atomic.Int64
}

func (s *stepping) Now() time.Time                  { return time.Unix(0, s.passed.Load()) }
func (s *stepping) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// A token that takes 100 ms to tell of a key.
func TestALookAtManyKeysOnASlowTokenGoesOnWhereTheLastOneEnded(t *testing.T) {
	const versions = 24
	c := newConfig(t)
	slow := &stepping{}
	c.Clock = slow
	token := newToken(t, c)
	_, err := token.Create(t.Context())
	require.NoError(t, err)
	for range versions - 1 {
		_, err := token.Rotate(t.Context())
		require.NoError(t, err)
	}
	a := alter(t, token)
	s, err := token.Open(t.Context())
	require.NoError(t, err)
	look := func(most int) (found kmsplugin.Versions, err error, reads int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a.set(func(a *altered) {
			a.attributes = func([]*cryptoki.Attribute) {
				slow.passed.Add(int64(100 * time.Millisecond))
				if reads++; reads >= most {
					cancel()
				}
			}
		})
		found, err = s.Versions(ctx)
		return found, err, reads
	}
	for range 2 {
		_, err, reads := look(versions / 2)
		require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
		require.Equal(t, versions/2, reads)
	}
	found, err, _ := look(versions / 2)
	require.NoError(t, err)
	require.Len(t, found.All, versions)
	found, err, reads := look(versions / 2)
	require.NoError(t, err)
	require.Len(t, found.All, versions)
	require.Positive(t, reads)
	require.NoError(t, s.Close(t.Context()))
}
