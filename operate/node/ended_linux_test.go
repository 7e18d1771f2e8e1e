package node

import (
	"context"
	"encoding/json"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A node that looks once an hour could not do it otherwise.
func TestAPluginThatEndsIsStartedAnewAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.Every, r.o.AskEvery = time.Hour, time.Hour
	r.give(r.draft(1, 1))
	r.follows()
	r.start()
	r.until("it is in effect", settled(1, 1))
	first := r.pid("1")
	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	r.until("another one has its place", func(p *Report) bool { return settled(1, 1)(p) && r.pid("1") != first && r.pid("1") != 0 })
}

func TestWhoWaitsForAnEndIsToldOfItOrThatNobodyWaitsAnyLonger(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runner := r.o.Runner.(*Processes)
	s := Spec{Instance: "i", Folder: r.folder + "/i"}
	require.NoError(t, os.Mkdir(s.Folder, 0o700))
	require.ErrorIs(t, runner.WaitEnd(t.Context(), s), os.ErrNotExist, "nothing is known of it")

	require.NoError(t, onRecord(s, os.Getpid(), program{}, "this"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.WaitEnd(ctx, s) }()
	cancel()
	require.Error(t, <-ended, "it has not ended")

	other, err := lifeOf(os.Getpid())
	require.NoError(t, err)
	other.Start++ // which had the number before
	text, err := json.Marshal(started{Life: other})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.Folder+"/"+startedName, text, 0o600))
	require.NoError(t, runner.WaitEnd(t.Context(), s), "another has its number")
}
