package node

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// silent is an apiserver that is not there, so that nobody has the node look.
type silent struct{}

func (silent) Name() string { return "127.0.0.1:6443" }

func (silent) Ask(context.Context) (Answer, error) { return Answer{}, errors.New("connection refused") }

// A node that looks once an hour could not notice it otherwise.
func TestTheEndOfAPluginIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.o.Every, r.o.AskEvery, r.o.Apiservers = time.Hour, time.Hour, []Asker{silent{}}
	r.give(r.draft(1, 1))
	r.start()
	var last *Report
	unchanged := 0
	r.until("it is in effect, and looked at no more", func(p *Report) bool {
		if unchanged++; p != last {
			last, unchanged = p, 0
		}
		return settled(1, 1)(p) && unchanged > 20
	})
	require.NoError(t, syscall.Kill(r.pid("1"), syscall.SIGKILL))
	r.until("it is cleared away", func(p *Report) bool { return len(p.Plugins) == 0 || p.Plugins[0].Restarts > 0 })
}

func TestWhoWaitsForAnEndIsToldOfItOrThatNobodyWaitsAnyLonger(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	runner := r.o.Runner.(*Processes)
	s := Spec{Instance: "i", Folder: r.folder + "/i"}
	require.NoError(t, os.Mkdir(s.Folder, 0o700))
	require.ErrorIs(t, runner.waitEnd(t.Context(), s), os.ErrNotExist, "nothing is known of it")

	require.NoError(t, onRecord(s, os.Getpid(), "this"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.waitEnd(ctx, s) }()
	cancel()
	require.Error(t, <-ended, "it has not ended")

	other, err := lifeOf(os.Getpid())
	require.NoError(t, err)
	other.Start++ // which had the number before
	text, err := json.Marshal(started{Life: other})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.Folder+"/"+startedName, text, 0o600))
	require.NoError(t, runner.waitEnd(t.Context(), s), "another has its number")
}
