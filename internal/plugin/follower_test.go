package plugin

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"
)

// rig is a plugin that is followed on a clock that stands still.
type rig struct {
	*Followed
	t       *testing.T
	clock   *testingclock.FakeClock
	wake    chan struct{}
	release func()

	mu      sync.Mutex
	trouble *Trouble // what the next question comes to
	asked   []Role
	changed []Problem
	closed  bool
}

func newRig(t *testing.T, change ...func(*Config)) *rig {
	r := &rig{t: t, clock: testingclock.NewFakeClock(start), wake: make(chan struct{})}
	config := Config{
		Clock: r.clock, Healthy: time.Minute, Unhealthy: 10 * time.Second, Wake: r.wake,
		Ask: r.answer,
		Changed: func() {
			p := r.Condition().class()
			r.note(func() { r.changed = append(r.changed, p) })
		},
		Close: func() { r.note(func() { r.closed = true }) },
	}
	for _, c := range change {
		c(&config)
	}
	r.Followed = Follow(config)
	r.release = r.Hold()
	t.Cleanup(r.release)
	return r
}

func (r *rig) note(what func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what()
}

func (r *rig) answer(_ context.Context, role Role) {
	var trouble *Trouble
	r.note(func() { r.asked = append(r.asked, role); trouble = r.trouble })
	now := r.clock.Now()
	r.Learn(func(k Known) Known {
		k.Status, k.Encrypt, k.Decrypt = k.Status.After(trouble, now, now), k.Encrypt.After(nil, now, now), k.Decrypt.After(nil, now, now)
		return k
	})
}

// settle waits until the follower pauses, and has asked what was due: of two
// jobs the second is not done before that.
func (r *rig) settle() {
	r.t.Helper()
	for range 2 {
		require.NoError(r.t, r.Do(r.t.Context(), func(context.Context) {}))
	}
}

func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.settle()
	r.clock.Step(d)
	r.settle()
}

func (r *rig) times() (n int) {
	r.settle()
	r.note(func() { n = len(r.asked) })
	return n
}

func (r *rig) is(trouble *Trouble) { r.note(func() { r.trouble = trouble }) }

func TestNobodyIsAskedBeforeThereIsARole(t *testing.T) {
	r := newRig(t)
	r.pass(24 * time.Hour)
	r.wake <- struct{}{}
	require.Zero(t, r.times())
	r.SetRole(Reads)
	require.NoError(t, r.Asked(t.Context()))
	require.Equal(t, 1, r.times())
	r.SetRole(Idle)
	r.pass(24 * time.Hour)
	require.Equal(t, 1, r.times())
}

func TestPollsGoByWhatIsKnown(t *testing.T) {
	r := newRig(t)
	r.SetRole(Writes)
	require.Equal(t, 1, r.times())
	r.pass(59 * time.Second)
	require.Equal(t, 1, r.times())
	r.is(Troublef(Unhealthy, "x"))
	r.pass(time.Second)
	require.Equal(t, 2, r.times())
	r.pass(9 * time.Second)
	require.Equal(t, 2, r.times())
	r.is(nil)
	r.pass(time.Second)
	require.Equal(t, 3, r.times())
	r.pass(59 * time.Second)
	require.Equal(t, 3, r.times())
}

func TestATroubleThatIsNewIsLookedAtAgainWhenItBeginsToCount(t *testing.T) {
	r := newRig(t)
	r.SetRole(Writes)
	r.settle()
	r.is(Troublef(Unreachable, "x"))
	r.wake <- struct{}{}
	require.Equal(t, 2, r.times())
	require.Empty(t, r.changed)
	r.pass(Grace - 1)
	require.Equal(t, 2, r.times())
	r.pass(1)
	require.Equal(t, 3, r.times())
	require.Equal(t, []Problem{Unreachable}, r.changed)
	r.pass(10 * time.Second)
	require.Equal(t, 4, r.times())
}

func TestAnotherRoleIsAskedForAtOnceIfItWrites(t *testing.T) {
	r := newRig(t)
	r.SetRole(Reads)
	r.settle()
	r.SetRole(Writes)
	require.NoError(t, r.Asked(t.Context()))
	require.Equal(t, []Role{Reads, Writes}, r.asked)
	r.SetRole(Reads)
	require.Equal(t, 2, r.times(), "it is known how the plugin is")
	r.pass(time.Minute)
	require.Equal(t, 3, r.times())
}

func TestOneOfKMSv1ThatIsOnlyReadWithIsAskedWhileSomethingIsWrong(t *testing.T) {
	r := newRig(t, func(c *Config) { c.OnlyWriters = true })
	r.SetRole(Reads)
	r.pass(24 * time.Hour)
	require.Zero(t, r.times())
	r.Learn(func(k Known) Known { return k.AfterTrial(Troublef(Denied, "x"), r.clock.Now(), r.clock.Now()) })
	r.Look()
	require.Equal(t, 1, r.times())
	r.pass(24 * time.Hour)
	require.Equal(t, 1, r.times())
}

func TestAValueThatFailsHasThePluginAskedSoonIfItsKEKIsThePresentOne(t *testing.T) {
	r := newRig(t)
	r.Learn(func(k Known) Known { k.KeyID = "present"; return k })
	r.SetRole(Reads)
	require.Equal(t, 1, r.times())
	r.pass(10 * time.Second)
	r.Suspect("former", Troublef(Denied, "x"))
	require.Equal(t, 1, r.times(), "that says nothing of the plugin")
	require.Nil(t, r.Load().Doubt)
	r.Suspect("present", Troublef(Denied, "x"))
	require.Equal(t, 2, r.times(), "long before the next poll")
	require.NotNil(t, r.Load().Doubt)
}

// What is done between two questions may bring to light that the plugin is ill.
func TestWhatAJobLearnsMovesTheNextPoll(t *testing.T) {
	r := newRig(t)
	r.SetRole(Reads)
	require.Equal(t, 1, r.times())
	require.NoError(t, r.Do(t.Context(), func(context.Context) {
		now := r.clock.Now()
		r.Learn(func(k Known) Known { return k.AfterTrial(Troublef(Denied, "x"), now, now) })
	}))
	require.Equal(t, []Problem{Denied}, r.changed)
	r.pass(10*time.Second - 1)
	require.Equal(t, 1, r.times())
	r.pass(1)
	require.Equal(t, 2, r.times(), "as often as one that is ill, not a minute later")
}

func TestOfAPluginThatNobodyUsesThereIsNoNews(t *testing.T) {
	r := newRig(t)
	tell := func() (news bool) {
		require.NoError(t, r.Do(t.Context(), func(context.Context) { news = r.tell() }))
		return news
	}
	r.Learn(func(k Known) Known { return k.AfterTrial(Troublef(Denied, "x"), start, start) })
	require.False(t, tell())
	require.Empty(t, r.changed)
	r.is(Troublef(Unhealthy, "x"))
	r.SetRole(Reads)
	r.settle()
	require.Equal(t, []Problem{Unhealthy}, r.changed, "once somebody does")
}

// No plugin, however it behaves, is asked more than once a second on average.
func TestAFloodOfWakesIsBounded(t *testing.T) {
	r := newRig(t)
	r.SetRole(Writes)
	r.settle()
	for i := range 1000 {
		if i%2 == 0 {
			r.is(Troublef(Unhealthy, "x"))
		} else {
			r.is(nil)
		}
		r.wake <- struct{}{}
		r.Look()
		r.clock.Step(10 * time.Millisecond)
	}
	require.LessOrEqual(t, r.times(), 10+askBurst+1)
}

func TestAWakeThatHasToWaitIsNotLost(t *testing.T) {
	r := newRig(t)
	r.SetRole(Writes)
	for range 2 * askBurst {
		r.wake <- struct{}{}
		r.settle()
	}
	before := r.times()
	r.is(Troublef(Unhealthy, "x"))
	r.wake <- struct{}{}
	require.Equal(t, before, r.times())
	r.pass(time.Minute - 1)
	require.Equal(t, before+1, r.times(), "later, and before the next poll is due")
}

func TestAskAsksNowUnlessThatWasAMomentAgo(t *testing.T) {
	r := newRig(t)
	r.SetRole(Reads)
	require.NoError(t, r.Asked(t.Context()))
	for range 20 {
		require.NoError(t, r.Ask(t.Context()))
	}
	require.Equal(t, 1, r.times())
	r.pass(time.Second)
	require.NoError(t, r.Ask(t.Context()))
	require.Equal(t, 2, r.times())
}

// The same problem in other words is told once a minute at most, and another
// problem at once.
func TestWhatIsTold(t *testing.T) {
	r := newRig(t)
	r.SetRole(Writes)
	r.settle()
	tell := func(p Problem, text string) {
		r.is(Troublef(p, "%s", text))
		r.pass(10 * time.Second)
	}
	r.pass(50 * time.Second)
	tell(Denied, "request 1")
	for i := range 12 {
		tell(Denied, "request "+string(rune('a'+i)))
	}
	require.Equal(t, []Problem{Denied, Denied, Denied}, r.changed)
	tell(Throttled, "x")
	r.is(nil)
	r.pass(10 * time.Second)
	require.Equal(t, []Problem{Denied, Denied, Denied, Throttled, ""}, r.changed)
	r.pass(time.Hour)
	require.Len(t, r.changed, 5)
}

func TestTheLastHoldEndsTheFollower(t *testing.T) {
	r := newRig(t)
	second := r.Hold()
	r.release()
	r.release()
	require.True(t, r.Begin())
	ended := make(chan struct{})
	go func() { second(); close(ended) }()
	require.Eventually(t, func() bool { return errors.Is(r.Ask(t.Context()), ErrClosed) }, 10*time.Second, time.Millisecond)
	r.note(func() { require.False(t, r.closed, "a call is under way") })
	require.False(t, r.Begin())
	r.Done()
	<-ended
	r.note(func() { require.True(t, r.closed) })
	require.ErrorIs(t, r.Do(t.Context(), nil), ErrClosed)
	require.ErrorIs(t, r.Asked(t.Context()), ErrClosed)
}

func TestWhoeverWaitsMayGiveUp(t *testing.T) {
	asking, answer := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(c *Config) {
		c.Ask = func(context.Context, Role) { asking <- struct{}{}; <-answer }
	})
	r.SetRole(Reads)
	<-asking
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Ask(ctx), context.Canceled)
	require.ErrorIs(t, r.Asked(ctx), context.Canceled)
	require.ErrorIs(t, r.Do(ctx, nil), context.Canceled)
	close(answer)
	require.NoError(t, r.Asked(t.Context()))
}

// What is asked is ended when the plugin is closed, and learned by nobody.
func TestAQuestionUnderWayEndsWithTheLastHold(t *testing.T) {
	asking := make(chan struct{})
	r := newRig(t, func(c *Config) {
		c.Ask = func(ctx context.Context, _ Role) { close(asking); <-ctx.Done() }
	})
	r.SetRole(Writes)
	<-asking
	r.release()
	require.Empty(t, r.changed)
}

// What was begun and did not end is not done.
func TestWhoWaitsForAnAnswerIsToldThatThePluginIsClosed(t *testing.T) {
	inside := make(chan struct{}, 1)
	r := newRig(t, func(c *Config) {
		c.Ask = func(ctx context.Context, _ Role) {
			inside <- struct{}{}
			<-ctx.Done()
		}
	})
	waits := make(chan error)
	go func() { waits <- r.Ask(context.Background()) }()
	<-inside
	go r.release()
	require.ErrorIs(t, <-waits, ErrClosed)

	r = newRig(t)
	go func() {
		waits <- r.Do(context.Background(), func(ctx context.Context) {
			inside <- struct{}{}
			<-ctx.Done()
		})
	}()
	<-inside
	go r.release()
	require.ErrorIs(t, <-waits, ErrClosed)
}
