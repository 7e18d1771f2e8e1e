package kmsv1

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/plugin"
)

// settle waits until the follower waits for its next question.
func (r *rig) settle() {
	r.t.Helper()
	require.Eventually(r.t, r.clock.HasWaiters, testWait, testTick)
}

// pass lets time go by, and waits for the end of the probe that this makes due,
// if it does.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.settle()
	r.clock.Step(d)
	r.settle()
}

func (r *rig) requireCalls(encrypts, decrypts int) {
	r.t.Helper()
	e, d := r.plugin.calls()
	require.Equal(r.t, []int{encrypts, decrypts}, []int{e, d})
}

func TestAPluginThatIsWrittenWithIsProbed(t *testing.T) {
	r := newRig(t)
	r.requireCalls(1, 1)
	require.Len(t, r.plugin.given()[0], dekSize, "what cuts a DEK cuts a probe")
	require.Equal(t, envelope.Health{Writes: true, Since: testStart, LastHealthy: testStart}, r.Health())

	r.pass(59 * time.Second)
	r.requireCalls(1, 1)
	r.pass(time.Second)
	r.requireCalls(2, 2)
	require.Equal(t, testStart.Add(time.Minute), r.Health().LastHealthy)
	require.Empty(t, r.seen.changes, "a plugin that is well from the beginning is no news")
}

func TestAPluginThatIsNotInUseIsNotAsked(t *testing.T) {
	r := newRig(t)
	r.SetRole(envelope.Idle)
	require.Eventually(t, func() bool { return !r.clock.HasWaiters() }, testWait, testTick, "nobody waits to ask it")
	r.clock.Step(never)
	r.plugin.wake <- struct{}{}
	require.NoError(t, r.followed.Do(t.Context(), func(context.Context) {}))
	r.requireCalls(1, 1)
}

func TestAPluginThatIsOnlyReadWithIsNotAskedWhileItIsWell(t *testing.T) {
	r := standing(t)
	require.True(t, verdictOf(r.Open(t.Context(), newRig(t).write("value"), testKey)).opened)
	r.settled()
	require.False(t, r.clock.HasWaiters())
	r.SetRole(envelope.Writes)
	r.settle()
	r.SetRole(envelope.Reads)
	require.Eventually(t, func() bool { return !r.clock.HasWaiters() }, testWait, testTick)
	r.requireCalls(1, 2)
}

// settled waits until the follower has taken in all that it was told.
func (r *rig) settled() {
	r.t.Helper()
	for range 3 {
		require.NoError(r.t, r.followed.Do(r.t.Context(), func(context.Context) {}))
	}
}

func TestAnOutageIsSeenAndItsEnd(t *testing.T) {
	r := newRig(t)
	r.plugin.die()
	r.pass(time.Minute)
	broke := testStart.Add(time.Minute)
	h := r.Health()
	require.Empty(t, h.Problem, "a restart is no outage")
	r.pass(plugin.Grace)
	h = r.Health()
	require.Equal(t, envelope.Unreachable, h.Problem)
	require.ErrorIs(t, h.Err, errGone)
	require.NotEmpty(t, h.Problem)
	require.Equal(t, broke, h.Since)
	require.Equal(t, testStart, h.LastHealthy)
	require.Equal(t, testStart, h.WritesUntil)

	r.pass(10 * time.Second)
	r.pass(10 * time.Second)
	require.Equal(t, broke, r.Health().Since, "it goes on")
	require.Len(t, r.seen.changes, 1)

	r.plugin.live()
	r.pass(9 * time.Second)
	require.Equal(t, envelope.Unreachable, r.Health().Problem, "until it is asked again")
	r.pass(time.Second)
	h = r.Health()
	require.Empty(t, h.Problem)
	require.Zero(t, h.WritesUntil, "nothing is written without the plugin")
	require.Equal(t, broke.Add(plugin.Grace+30*time.Second), h.LastHealthy)
	require.Equal(t, h.LastHealthy, h.Since)
	require.Len(t, r.seen.changes, 2)
}

// Between two polls nobody notices, at one it costs no readiness, and no write
// that the connection waits for is refused.
func TestARestartCostsNoReadinessAndNoWrite(t *testing.T) {
	r := newRig(t)
	r.plugin.die()
	r.pass(time.Minute)
	r.clock.Step(plugin.Grace - 1)
	r.plugin.live()
	r.write("value")
	r.pass(1)
	h := r.Health()
	require.Empty(t, h.Problem)
	require.Empty(t, r.seen.changes)
}

func TestAConnectionThatComesUpIsWorthAProbe(t *testing.T) {
	plugin := newFaultyPlugin()
	plugin.die()
	r := newRigOn(t, plugin)
	h := r.Health()
	require.Equal(t, envelope.Unreachable, h.Problem)
	require.Zero(t, h.WritesUntil, "it never wrote")
	plugin.live()
	plugin.wake <- struct{}{}
	require.Eventually(t, func() bool { h := r.Health(); return h.Problem == "" }, testWait, testTick)
}

func TestTheProbeHoldsThePluginToItsAnswers(t *testing.T) {
	for name, spoil := range map[string]func(*faultyPlugin){
		"gives back something else": func(p *faultyPlugin) { p.unwrapped = []byte("pong") },
		"wraps to nothing":          func(p *faultyPlugin) { p.wrap = func([]byte) []byte { return nil } },
		"wraps to too much":         func(p *faultyPlugin) { p.wrap = func([]byte) []byte { return make([]byte, maxWrapped+1) } },
	} {
		plugin := newFaultyPlugin()
		spoil(plugin)
		require.Equal(t, envelope.BadAnswer, newRigOn(t, plugin).Health().Problem, name)
	}
}

func TestProblemsAreClassed(t *testing.T) {
	for err, want := range map[error]envelope.Problem{
		errGone:                                   envelope.Unreachable,
		status.Error(codes.DeadlineExceeded, ""):  envelope.TimedOut,
		status.Error(codes.Unauthenticated, ""):   envelope.Denied,
		status.Error(codes.ResourceExhausted, ""): envelope.Throttled,
		fmt.Errorf("x: %w", errVersion):           envelope.BadVersion,
		fmt.Errorf("odd"):                         envelope.Failed,
	} {
		plugin := newFaultyPlugin()
		plugin.set(func(f *faultyPlugin) { f.encErr = err })
		require.Equal(t, want, newRigOn(t, plugin).Health().Problem)
		plugin = newFaultyPlugin()
		plugin.set(func(f *faultyPlugin) { f.decErr = err })
		h := newRigOn(t, plugin).Health()
		require.Equal(t, want, h.Problem)
		require.ErrorIs(t, h.Err, err)
	}
}

func TestProbedWaitsForTheFirstProbe(t *testing.T) {
	plugin := newFaultyPlugin()
	plugin.decrypting = make(chan struct{})
	l := hold(t, NewProvider(plugin, Options{}), envelope.Writes)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.followed.Asked(ctx), context.Canceled)
	require.Equal(t, envelope.Unreachable, l.Health().Problem, "not asked yet is not healthy")
	l.End() // ends the probe under way
	require.True(t, plugin.closed)
}
