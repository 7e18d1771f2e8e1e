package conformance

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The IDs of processes begin anew at some number, so that one which began before may have a higher one.
func TestAProcessWithAHighIDMayHaveBegunBefore(t *testing.T) {
	now := thisInstant()
	require.NotZero(t, now)
	later := instant{ticks: now.ticks + 1, newest: 1}
	after, err := later.isBefore(os.Getpid())
	require.NoError(t, err)
	require.False(t, after)
}

func TestAProcessWithALowIDMayHaveBegunAfterwards(t *testing.T) {
	after, err := instant{ticks: 0, newest: 1 << 22}.isBefore(os.Getpid())
	require.NoError(t, err)
	require.True(t, after)
}

func TestOfTwoThatBeganInOneTickTheHigherIDIsLater(t *testing.T) {
	now := thisInstant()
	for now.newest = os.Getpid() - 1; ; now.ticks-- { // until it is the tick in which this process began
		after, err := now.isBefore(os.Getpid())
		require.NoError(t, err)
		if after {
			break
		}
	}
	now.newest++
	after, err := now.isBefore(os.Getpid())
	require.NoError(t, err)
	require.False(t, after)
}
