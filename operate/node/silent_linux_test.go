package node

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// It accepts connections, and that is all.
func TestAPluginThatHangsIsReplacedByOneThatAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.Timeout, r.o.Silence, r.o.Patience = time.Second, time.Second, time.Second
	r.runs()
	hangs := r.pid("1")
	require.NoError(t, syscall.Kill(hangs, syscall.SIGSTOP))
	report := r.until("another one has its place", func(p *Report) bool { return settled(1, 1)(p) && r.pid("1") != hangs && r.pid("1") != 0 })
	require.Positive(t, report.Plugins[0].Restarts)
	require.False(t, lives(hangs))
}

// There is nothing better than it yet.
func TestAPluginThatHangsKeepsItsNameWhileNoOtherAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.Timeout, r.o.Silence, r.o.Patience = time.Second, time.Second, time.Second
	r.runs()
	hangs := r.pid("1")
	keys := r.keys(1)
	require.NoError(t, os.Rename(keys, keys+".away"))
	require.NoError(t, syscall.Kill(hangs, syscall.SIGSTOP))
	r.until("it is told, and another one was tried", func(p *Report) bool {
		return tells("has answered nothing since", "ended by itself")(p)
	})
	require.Equal(t, hangs, r.pid("1"))
	require.NoError(t, os.Rename(keys+".away", keys))
	require.NoError(t, syscall.Kill(hangs, syscall.SIGCONT))
	r.until("one answers", settled(1, 1))
}

// Its KMS may be what hangs, and another one would wait for that as well.
func TestAPluginThatTellsItsStatusAndWrapsNothingIsNotSilent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.Timeout = 5 * time.Second
	d := r.draft(1, 1)
	d.Plugins[0] = r.faultyPlugin(1, "hangs")
	r.give(d)
	r.start()
	r.until("it is told", func(r *Report) bool {
		return len(r.Plugins) == 1 && r.Plugins[0].Class == plugin.TimedOut && r.Plugins[0].State == "serving" && r.Plugins[0].SilentSince.IsZero()
	})
}
