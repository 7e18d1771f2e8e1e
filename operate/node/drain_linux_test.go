package node

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// endsWithStart has the node end that has just started a plugin.
type endsWithStart struct {
	*Processes
	end     context.CancelFunc
	started []int
}

func (e *endsWithStart) Start(s Spec) error {
	defer e.end()
	if err := e.Processes.Start(s); err != nil {
		return err
	}
	p, err := recordOf(s)
	e.started = append(e.started, p.Life.PID)
	return err
}

func (r *rig) endingWithStart() (*endsWithStart, context.Context) {
	ctx, stop := context.WithCancel(r.t.Context())
	r.t.Cleanup(stop)
	runner := &endsWithStart{Processes: r.o.Runner.(*Processes), end: stop}
	r.o.Runner = runner
	return runner, ctx
}

func TestANodeThatIsToDrainEndsWhatItStartedLast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.give(r.draft(1, 1))
	r.o.Drain = true
	runner, ctx := r.endingWithStart()
	n, err := New(r.o)
	require.NoError(t, err)
	require.NoError(t, n.Run(ctx))
	require.Len(t, runner.started, 1)
	require.False(t, lives(runner.started[0]))
}

func TestATryThatIsInterruptedEndsWhatItStartedLast(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, os.MkdirAll(r.o.Run, 0o700))
	b, err := bundle.New(r.draft(1, 1))
	require.NoError(t, err)
	runner, ctx := r.endingWithStart()
	_, err = Try(ctx, b, r.o)
	require.NoError(t, err)
	require.Len(t, runner.started, 1)
	require.False(t, lives(runner.started[0]))
}

// None is ended, and that is not told as if all had been.
func TestANodeThatCannotReadWhatRunsDoesNotTellThatAllHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.Drain = true
	require.NoError(t, os.MkdirAll(r.o.Run+"/instances/one", 0o700))
	require.NoError(t, os.WriteFile(r.o.Run+"/instances/one/"+recordName, []byte("not what was written"), 0o600))
	n, err := New(r.o)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorContains(t, n.Run(ctx), "which plugins run is not known")
	require.NoError(t, os.RemoveAll(r.o.Run+"/instances"))
}
