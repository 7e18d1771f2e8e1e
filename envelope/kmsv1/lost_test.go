package kmsv1

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/envelope"
)

// A plugin that answers the same to all is found out by the second answer, between
// two probes too.
func TestAnAnswerThatWasGivenBeforeIsNotStored(t *testing.T) {
	r := newRig(t)
	r.write("well")
	r.plugin.set(func(p *faultyPlugin) { p.wrap = func([]byte) []byte { return []byte("AAAA") } })
	_, _ = r.Seal(t.Context(), testPrefix, []byte("the first cannot be told"), testKey)
	_, err := r.Seal(t.Context(), testPrefix, []byte("v"), testKey)
	require.ErrorContains(t, err, "the same answer for two secrets")
	require.Eventually(t, func() bool { return !ready(r) }, testWait, testTick)
}

// What was wrapped ahead, by a KEK that is gone, is wrapped again.
func TestAProofThatIsRefusedIsMadeAgain(t *testing.T) {
	r := standing(t)
	require.NoError(t, r.Prepare(t.Context()))
	before := r.proof.Load().wrapped
	r.plugin.set(func(p *faultyPlugin) { p.damaged = before })
	r.clock.Step(2 * time.Second)
	require.ErrorIs(t, r.Prepare(t.Context()), errDamaged)
	require.NoError(t, r.Prepare(t.Context()))
	r.SetRole(envelope.Writes)
	r.write("v")
}

// One value that a reader met must not keep its plugin from becoming the writer.
func TestAReaderThatMetADamagedValueCanBecomeTheWriter(t *testing.T) {
	value := newRig(t).write("value")
	wrapped, _, ok := split(value)
	require.True(t, ok)
	r := standing(t)
	r.plugin.set(func(p *faultyPlugin) { p.damaged = wrapped })
	_, _, err := r.Open(t.Context(), value, testKey)
	require.ErrorIs(t, err, errDamaged)
	require.Eventually(t, func() bool { return r.Health().Problem == envelope.Failed }, testWait, testTick, "it has unwrapped nothing")
	require.NoError(t, r.Prepare(t.Context()))
	r.SetRole(envelope.Writes)
	r.write("v")
	r.settled()
	require.Empty(t, r.Health().Problem)
}

// One value that fails says nothing of a plugin that unwraps others.
func TestOneValueThatFailsSaysNothingOfThePlugin(t *testing.T) {
	value, well := newRig(t).write("value"), newRig(t).write("well")
	wrapped, _, _ := split(value)
	for _, role := range []envelope.Role{envelope.Reads, envelope.Writes} {
		r := newRig(t)
		r.SetRole(role)
		require.True(t, verdictOf(r.Open(t.Context(), well, testKey)).opened)
		r.plugin.set(func(p *faultyPlugin) { p.damaged = wrapped })
		for range 60 {
			require.False(t, verdictOf(r.Open(t.Context(), value, testKey)).opened)
			r.settled()
			require.Empty(t, r.Health().Problem)
			r.clock.Step(10 * time.Second)
			r.settled()
		}
		require.Empty(t, r.seen.changes)
	}
}

// Whatever the plugin answers to Version is not the value's matter, and does not
// make it one to delete.
func TestARefusedVersionIsNotTheMatterOfAValue(t *testing.T) {
	value := newRig(t).write("value")
	for _, code := range []codes.Code{codes.InvalidArgument, codes.NotFound, codes.Unimplemented, codes.Internal} {
		s := newServer(t)
		s.refusal = status.Error(code, "refused by the test")
		s.start(t)
		r := frozen(t, s, never)
		require.NotEmpty(t, r.Health().Problem, code)
		_, _, err := r.Open(t.Context(), value, testKey)
		require.ErrorIs(t, err, envelope.ErrUnavailable, code)
		require.NotErrorIs(t, err, envelope.ErrCorrupt, code)
		require.NotErrorIs(t, err, envelope.ErrUnknownKEK, code)
	}
}

func TestAnotherTimeoutLosesNoCount(t *testing.T) {
	r := newRig(t)
	value := r.write("v")
	require.True(t, verdictOf(r.Open(t.Context(), value, testKey)).opened)
	heir := hold(t, NewProvider(newFaultyPlugin(), Options{}), envelope.Reads)
	heir.Inherit(r.Provider)
	heir.Usage()
	require.EqualValues(t, 1, heir.Health().Reads)
}

// A plugin that wraps and does not answer to Decrypt is written with for three
// minutes, as one of KMS v2 would be.
func TestWritesEndWhileNothingIsUnwrapped(t *testing.T) {
	r := newRig(t)
	r.plugin.set(func(p *faultyPlugin) { p.decErr = errGone })
	for range 12 {
		r.pass(envelope.DefaultUnhealthyPoll)
	}
	r.write("within")
	for range 12 {
		r.pass(envelope.DefaultUnhealthyPoll)
	}
	_, err := r.Seal(t.Context(), testPrefix, []byte("v"), testKey)
	require.ErrorIs(t, err, envelope.ErrWritesStopped)
}

// Whatever kept it from being seen: also that its Encrypt failed meanwhile. It is well
// when it has unwrapped again, and not by wrapping.
func TestAfterAnOutageAPluginIsWrittenWithWhenItHasUnwrapped(t *testing.T) {
	r := newRig(t)
	r.write("well")
	r.plugin.die()
	for range 30 {
		r.pass(envelope.DefaultUnhealthyPoll)
	}
	gate := make(chan struct{})
	r.plugin.set(func(p *faultyPlugin) { p.encErr, p.decErr, p.decrypting = nil, nil, gate })
	for range 10 {
		_, err := r.Seal(t.Context(), testPrefix, []byte("v"), testKey)
		require.ErrorIs(t, err, envelope.ErrWritesStopped)
		require.ErrorContains(t, err, "last seen to unwrap what it wraps at 2026-")
		require.NotEmpty(t, r.Health().Problem)
	}
	close(gate)
	r.clock.Step(time.Second)
	r.settled()
	r.write("no poll was due yet")
	require.Empty(t, r.Health().Problem)
}

// Within the three minutes it is written with, and not well by that.
func TestAWriteThatIsWrappedAfterAnOutageDoesNotMakeThePluginWell(t *testing.T) {
	r := newRig(t)
	r.plugin.set(func(p *faultyPlugin) { p.encErr = errDamaged })
	r.pass(envelope.DefaultHealthyPoll)
	require.NotEmpty(t, r.Health().Problem)
	r.plugin.set(func(p *faultyPlugin) { p.encErr = nil })
	gate := make(chan struct{})
	defer close(gate)
	r.plugin.set(func(p *faultyPlugin) { p.decrypting = gate })
	r.write("v")
	require.NotEmpty(t, r.Health().Problem)
}

// A write that is wrapped has the plugin probed, which makes it well before its poll.
func TestAPluginThatWrapsAgainIsWellSoon(t *testing.T) {
	r := newRig(t)
	r.clock.Step(time.Second)
	r.plugin.set(func(p *faultyPlugin) { p.encErr = status.Error(codes.ResourceExhausted, "slow down") })
	_, err := r.Seal(t.Context(), testPrefix, []byte("v"), testKey)
	require.Error(t, err)
	r.settled()
	r.clock.Step(2 * time.Second)
	r.settled()
	require.Equal(t, envelope.Throttled, r.Health().Problem)
	r.plugin.live()
	r.write("v")
	r.clock.Step(5 * time.Second)
	r.settled()
	require.Empty(t, r.Health().Problem)
}

// One call too many says nothing of what was wrapped.
func TestAProbeThatIsThrottledStopsNoWrite(t *testing.T) {
	r := newRig(t)
	r.plugin.set(func(p *faultyPlugin) { p.decErr = status.Error(codes.ResourceExhausted, "slow down") })
	r.pass(envelope.DefaultHealthyPoll)
	require.Equal(t, envelope.Throttled, r.Health().Problem)
	r.write("v")
}

// A write that is refused has the plugin probed again, sooner than its poll.
func TestARefusedWriteHasThePluginProbed(t *testing.T) {
	r := newRig(t)
	r.plugin.set(func(p *faultyPlugin) { p.decErr = errDamaged })
	r.pass(envelope.DefaultHealthyPoll)
	r.plugin.live()
	_, err := r.Seal(t.Context(), testPrefix, []byte("v"), testKey)
	require.ErrorIs(t, err, envelope.ErrWritesStopped)
	r.clock.Step(2 * time.Second)
	r.settled()
	r.write("v")
}

// A writer's plugin that unwraps what it wraps now, and nothing from before.
func TestAWriterThatUnwrapsNothingOfBeforeIsNotWell(t *testing.T) {
	before, cold := newRig(t).write("before"), newRig(t).write("cold")
	wrappedBefore, _, _ := split(before)
	wrappedCold, _, _ := split(cold)
	r := newRig(t)
	require.True(t, verdictOf(r.Open(t.Context(), before, testKey)).opened)
	r.plugin.set(func(p *faultyPlugin) { p.damaged, p.damagedToo = wrappedBefore, wrappedCold })
	require.False(t, verdictOf(r.Open(t.Context(), cold, testKey)).opened)
	r.settled()
	require.Equal(t, envelope.Failed, r.Health().Problem)
	changes := len(r.seen.changes)
	for range 20 {
		r.clock.Step(envelope.DefaultUnhealthyPoll)
		r.settled()
		require.Equal(t, envelope.Failed, r.Health().Problem, "its probe is well each time")
	}
	require.Len(t, r.seen.changes, changes)
	r.plugin.set(func(p *faultyPlugin) { p.damaged, p.damagedToo = nil, nil })
	r.clock.Step(envelope.DefaultUnhealthyPoll)
	r.settled()
	require.Empty(t, r.Health().Problem)
}
