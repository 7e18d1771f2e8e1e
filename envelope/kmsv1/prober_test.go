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
)

// settle waits until the loop waits for its next poll.
func (r *rig) settle() {
	r.t.Helper()
	require.Eventually(r.t, r.clock.HasWaiters, testWait, testTick)
}

// pass lets time go by and, if that makes a probe due, waits for its end.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	r.settle()
	before, _ := r.plugin.calls()
	due := d >= envelope.DefaultHealthyPoll || r.Health().Problem != "" && d >= envelope.DefaultUnhealthyPoll
	r.clock.Step(d)
	if !due {
		return
	}
	require.Eventually(r.t, func() bool { n, _ := r.plugin.calls(); return n > before }, testWait, testTick)
	r.settle()
}

func TestAPluginThatIsWrittenWithIsProbed(t *testing.T) {
	r := newRig(t)
	encrypts, decrypts := r.plugin.calls()
	require.Equal(t, []int{1, 1}, []int{encrypts, decrypts})
	require.Equal(t, []byte("ping"), r.plugin.secrets[0])
	require.Equal(t, envelope.Health{Writes: true, Since: testStart, LastHealthy: testStart}, r.Health())

	r.pass(59 * time.Second)
	encrypts, _ = r.plugin.calls()
	require.Equal(t, 1, encrypts)
	r.pass(61 * time.Second)
	encrypts, decrypts = r.plugin.calls()
	require.Equal(t, []int{2, 2}, []int{encrypts, decrypts})
	require.Len(t, r.seen.changes, 1, "told of when it became healthy, and no more")
}

func TestAnOutageIsSeenAndItsEnd(t *testing.T) {
	r := newRig(t)
	r.plugin.die()
	r.pass(time.Minute)
	broke := testStart.Add(time.Minute)
	h := r.Health()
	require.Equal(t, envelope.Unreachable, h.Problem)
	require.ErrorIs(t, h.Err, errGone)
	require.False(t, h.Ready())
	require.Equal(t, broke, h.Since)
	require.Equal(t, testStart, h.LastHealthy)
	require.Equal(t, testStart, h.WritesUntil)

	r.pass(10 * time.Second)
	r.pass(10 * time.Second)
	require.Equal(t, broke, r.Health().Since, "it goes on")
	require.Len(t, r.seen.changes, 2)

	r.plugin.live()
	r.pass(10 * time.Second)
	h = r.Health()
	require.Empty(t, h.Problem)
	require.True(t, h.Ready())
	require.Zero(t, h.WritesUntil, "nothing is written without the plugin")
	require.Equal(t, testStart.Add(90*time.Second), h.LastHealthy)
	require.Len(t, r.seen.changes, 3)
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
		plugin.encErr = err
		require.Equal(t, want, newRigOn(t, plugin).Health().Problem)
		plugin = newFaultyPlugin()
		plugin.decErr = err
		h := newRigOn(t, plugin).Health()
		require.Equal(t, want, h.Problem)
		require.ErrorIs(t, h.Err, err)
	}
}

func TestProbedWaitsForTheFirstProbe(t *testing.T) {
	plugin := newFaultyPlugin()
	plugin.decrypting = make(chan struct{})
	l := NewProvider("test", plugin, Options{}).LeaseToWrite()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Probed(ctx), context.Canceled)
	require.Equal(t, envelope.Unreachable, l.Health().Problem, "not asked yet is not healthy")
	l.End() // ends the probe under way
	require.True(t, plugin.closed)
}

func TestAReadThatFailsSaysNothingOfWriting(t *testing.T) {
	r := newRig(t)
	payload := newRig(t).write("value")
	r.plugin.set(func(p *faultyPlugin) { p.decErr = errGone })
	_, _, err := r.Open(t.Context(), payload, testKey)
	require.Error(t, err)
	require.Empty(t, r.Health().Problem, "the probe will tell")
}
