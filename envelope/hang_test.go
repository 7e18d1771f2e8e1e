package envelope

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"
)

// silentPlugin stops answering Status after the first time.
type silentPlugin struct{ *faultyPlugin }

func (p silentPlugin) Status(ctx context.Context) (Status, error) {
	s, err := p.faultyPlugin.Status(ctx)
	if n, _, _ := p.calls(); n > 1 {
		<-ctx.Done()
		return Status{}, ctx.Err()
	}
	return s, err
}

// A call of Status may outlast the write window: its timeout is the operator's.
func TestAProviderWhoseWindowIsOverIsNotReadyWhileStatusHangs(t *testing.T) {
	clock := testingclock.NewFakeClock(testStart)
	plugin := silentPlugin{newFaultyPlugin()}
	lease := lease(NewProvider(plugin, Options{Clock: clock}), Writes)
	t.Cleanup(lease.End)
	require.NoError(t, lease.Asked(t.Context()))
	require.Eventually(t, clock.HasWaiters, testWait, testTick)
	clock.Step(DefaultHealthyPoll)
	require.Eventually(t, func() bool { n, _, _ := plugin.calls(); return n == 2 }, testWait, testTick)

	clock.Step(DefaultWriteWindow)
	_, err := lease.Seal(t.Context(), "p:", []byte("x"), testKey)
	require.ErrorIs(t, err, ErrWritesStopped)
	health := lease.Health()
	require.NotEmpty(t, health.Problem, "writes fail and the check says ok")
	require.Equal(t, TimedOut, health.Problem)
}
