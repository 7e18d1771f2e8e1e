package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// askedUntil counts how often a plugin is asked that wakes all the time.
func askedUntil(end time.Duration, news bool, poll time.Duration) (n int) {
	var p pace
	var w wakes
	for now := start; now.Before(start.Add(end)); n++ {
		p.asked(now)
		w.brought(now, news, poll)
		now = p.earliest(w.earliest(now))
	}
	return n
}

func TestAPluginIsAskedNoMoreThanOnceASecond(t *testing.T) {
	require.LessOrEqual(t, askedUntil(100*time.Second, true, time.Minute), 100+askBurst)
	require.GreaterOrEqual(t, askedUntil(100*time.Second, true, time.Minute), 99)
}

func TestWakesWithoutNewsGrowToThePoll(t *testing.T) {
	require.LessOrEqual(t, askedUntil(10*time.Second, false, time.Minute), 4)
	require.LessOrEqual(t, askedUntil(time.Hour, false, time.Minute), 63)
	require.GreaterOrEqual(t, askedUntil(time.Hour, false, time.Minute), 59)
}

func TestABurstIsSpentAndComesBack(t *testing.T) {
	var p pace
	for range askBurst {
		require.Equal(t, start, p.earliest(start))
		p.asked(start)
	}
	require.Equal(t, start.Add(askEvery), p.earliest(start))
	after := start.Add(time.Hour)
	require.Equal(t, after, p.earliest(after))
	p.asked(after)
	require.Equal(t, after, p.earliest(after), "a pause fills the burst again, and no more than that")
}
