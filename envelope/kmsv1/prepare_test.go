package kmsv1

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/envelope"
)

// standing is a provider that only reads, on a clock that stands still.
func standing(t *testing.T) *rig {
	r := &rig{t: t, plugin: newFaultyPlugin(), clock: testingclock.NewFakeClock(testStart), seen: &recorder{}}
	r.held = hold(t, NewProvider(r.plugin, Options{Clock: r.clock, Observer: r.seen}), envelope.Reads)
	return r
}

func TestAProviderThatWasMadeReadyWritesAtOnce(t *testing.T) {
	r := standing(t)
	require.NoError(t, r.Prepare(t.Context()))
	r.requireCalls(1, 1)
	r.plugin.decrypting = make(chan struct{}) // the probe that follows does not end
	defer close(r.plugin.decrypting)
	r.SetRole(envelope.Writes)
	h := r.Health()
	require.True(t, h.Writes)
	require.Empty(t, h.Problem, h.Err)
	require.Equal(t, testStart, h.LastHealthy)
	r.write("value")
}

func TestAProviderThatWasNotMadeReadyWaitsForItsProbe(t *testing.T) {
	r := standing(t)
	require.True(t, verdictOf(r.Open(t.Context(), newRig(t).write("value"), testKey)).opened)
	r.plugin.decrypting = make(chan struct{})
	r.SetRole(envelope.Writes)
	_, err := r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.ErrorIs(t, err, envelope.ErrUnavailable, "that it unwraps other values is no proof")
	require.False(t, ready(r))
	close(r.plugin.decrypting)
	require.NoError(t, r.followed.Asked(t.Context()))
	require.True(t, ready(r))
	r.write("value")
}

func ready(r *rig) bool { h := r.Health(); return h.Problem == "" }

// A file may be tried for days before its plugins are all well.
func TestMakingReadyAgainAndAgainCostsOneProbeAndChangesNothing(t *testing.T) {
	r := standing(t)
	require.True(t, verdictOf(r.Open(t.Context(), newRig(t).write("value"), testKey)).opened)
	before := r.Health()
	for range 10000 {
		require.NoError(t, r.Prepare(t.Context()))
	}
	r.requireCalls(1, 2)
	require.Equal(t, before, r.Health())

	r.clock.Step(envelope.DefaultHealthyPoll)
	require.NoError(t, r.Prepare(t.Context()))
	r.requireCalls(1, 3)
	require.Equal(t, before, r.Health())
	require.Empty(t, r.seen.changes)
	require.Zero(t, r.seen.generated)
}

func TestWhatCannotBeMadeReadySaysWhyAndChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(*faultyPlugin)
		problem string
	}{
		"it is away":                    {func(p *faultyPlugin) { p.encErr = errGone }, "nobody listens"},
		"it does not unwrap":            {func(p *faultyPlugin) { p.decErr = status.Error(codes.PermissionDenied, "no") }, "no"},
		"it gives back another":         {func(p *faultyPlugin) { p.unwrapped = []byte("gnip") }, "does not give back"},
		"it wraps to what has no space": {func(p *faultyPlugin) { p.wrap = func([]byte) []byte { return make([]byte, maxWrapped+1) } }, "65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := standing(t)
			before := r.Health()
			c.spoil(r.plugin)
			for range 3 {
				require.ErrorContains(t, r.Prepare(t.Context()), c.problem)
			}
			require.Equal(t, before, r.Health())
			require.Empty(t, r.seen.changes)

			r.SetRole(envelope.Writes)
			require.NoError(t, r.followed.Asked(t.Context()))
			_, err := r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
			require.Error(t, err)
			require.False(t, ready(r))
		})
	}
}

func TestMakingReadyEndsWithItsContext(t *testing.T) {
	r := standing(t)
	r.plugin.decrypting = make(chan struct{})
	defer close(r.plugin.decrypting)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Prepare(ctx) }()
	require.Eventually(t, func() bool { _, n := r.plugin.calls(); return n == 1 }, testWait, testTick)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// A provider that writes is asked how it is, and that it is not well is said.
func TestAWriterIsReadyWhenItIsWell(t *testing.T) {
	r := newRig(t)
	require.NoError(t, r.Prepare(t.Context()))
	r.requireCalls(1, 1)
	r.plugin.set(func(p *faultyPlugin) { p.encErr = fmt.Errorf("no quota") })
	r.clock.Step(2 * time.Second)
	require.ErrorContains(t, r.Prepare(t.Context()), "no quota")
	r.plugin.live()
	r.clock.Step(2 * time.Second)
	require.NoError(t, r.Prepare(t.Context()))
}
