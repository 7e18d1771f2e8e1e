package plugin

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"
)

var errSick = errors.New("sick")

func TestALoopAsksAtItsPolls(t *testing.T) {
	clock := testingclock.NewFakeClock(start)
	asked := make(chan struct{})
	var sick atomic.Bool
	wake := make(chan struct{})
	l := Follow(Polls{Clock: clock, Healthy: time.Minute, Unhealthy: time.Second, Wake: wake}, nil, func(context.Context) error {
		asked <- struct{}{}
		if sick.Load() {
			return errSick
		}
		return nil
	})
	pass := func(d time.Duration) {
		require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
		clock.Step(d)
	}
	<-asked
	require.NoError(t, l.Asked(t.Context()))
	pass(59 * time.Second)
	require.True(t, clock.HasWaiters(), "not before its time")
	sick.Store(true)
	clock.Step(time.Second)
	<-asked
	pass(time.Second)
	<-asked
	wake <- struct{}{}
	<-asked

	outcome := make(chan error)
	go func() { outcome <- l.Ask(t.Context()) }()
	<-asked
	require.ErrorIs(t, <-outcome, errSick)
	l.Stop()
	l.Wait()
	require.ErrorIs(t, l.Ask(t.Context()), ErrClosed)
}

// Of two loops the second begins when the first has ended.
func TestOneLoopComesAfterTheOther(t *testing.T) {
	polls := Polls{Clock: testingclock.NewFakeClock(start), Healthy: time.Minute, Unhealthy: time.Second}
	asks, release := make(chan struct{}), make(chan struct{})
	first := Follow(polls, nil, func(context.Context) error {
		close(asks)
		<-release
		return nil
	})
	<-asks
	first.Stop()
	var early atomic.Bool
	second := Follow(polls, first, func(context.Context) error {
		select {
		case <-first.done:
		default:
			early.Store(true)
		}
		return nil
	})
	for range 100 {
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, second.Asked(ctx), context.Canceled)
	require.ErrorIs(t, second.Ask(ctx), context.Canceled)
	close(release)
	require.NoError(t, second.Asked(t.Context()))
	require.False(t, early.Load())
	second.Stop()
	second.Wait()

	third := Follow(polls, second, func(context.Context) error { return nil })
	third.Stop()
	third.Wait()
	var none *Loop
	none.Stop()
	none.Wait()
}

// What a plugin is followed as is what its leases want of it together.
func TestLeasesTellWhatAPluginIsUsedFor(t *testing.T) {
	polls := Polls{Clock: testingclock.NewFakeClock(start), Healthy: time.Minute, Unhealthy: time.Second}
	var uses []Use
	var loops []*Loop
	closed := false
	l := &Leases{}
	l.Follow = func(now Use, before *Loop) *Loop {
		uses = append(uses, now)
		if now == Held {
			return nil
		}
		loops = append(loops, Follow(polls, before, func(context.Context) error { return nil }))
		return loops[len(loops)-1]
	}
	l.Close = func() {
		for _, loop := range loops {
			require.ErrorIs(t, loop.Ask(t.Context()), ErrClosed, "all have ended")
		}
		closed = true
	}
	hold := l.Hold()
	require.Empty(t, uses)
	read, again := l.Read(), l.Read()
	write := l.Write()
	again()
	again()
	require.Equal(t, []Use{ReadWith, Written}, uses)
	write()
	require.Equal(t, []Use{ReadWith, Written, ReadWith}, uses)
	read()
	require.Equal(t, []Use{ReadWith, Written, ReadWith, Held}, uses)
	require.True(t, l.Begin())
	l.Done()
	require.False(t, closed)
	hold()
	require.True(t, closed)
	require.False(t, l.Begin())
}
