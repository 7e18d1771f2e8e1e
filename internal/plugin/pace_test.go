package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// askedUntil counts how often a plugin is asked that wakes all the time.
func askedUntil(end time.Duration, news bool, poll time.Duration) (n int) {
	var p pace
	for now := start; now.Before(start.Add(end)); n++ {
		p.asked(now, true, news, poll)
		now = p.earliestWake(now)
		if next := p.earliestWake(now); next.After(now) {
			panic("it may not be asked when it may be asked")
		}
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

func TestNewsBringsTheWakesBack(t *testing.T) {
	var p pace
	for range 5 {
		p.asked(start, true, false, time.Minute)
	}
	later := start.Add(time.Minute)
	p.asked(later, false, true, time.Minute)
	require.Equal(t, later, p.earliestWake(later))
}

func TestABurstIsSpentAndComesBack(t *testing.T) {
	var p pace
	for range askBurst {
		require.Equal(t, start, p.earliest(start))
		p.asked(start, false, true, time.Minute)
	}
	require.Equal(t, start.Add(askEvery), p.earliest(start))
	after := start.Add(time.Hour)
	require.Equal(t, after, p.earliest(after))
	p.asked(after, false, true, time.Minute)
	require.Equal(t, after, p.earliest(after), "a pause fills the burst again, and no more than that")
}
