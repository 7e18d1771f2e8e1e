//go:build !race

package tally

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// The race detector drops pooled objects at random.
func TestCountingAllocatesNothing(t *testing.T) {
	c, h := NewCounter(), NewHistogram()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		v := Begin(key)
		c.Add(SpotOf(v))
		h.Observe(v.Spot(), 1)
		v.End()
		c.Add(SpotOf(key))
	}))
}

func TestASpotStaysWithItsProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	first := Pick()
	for range 100 {
		v := Begin(key)
		require.Equal(t, first, v.Spot())
		v.End()
		require.Equal(t, first, Pick())
	}
}
