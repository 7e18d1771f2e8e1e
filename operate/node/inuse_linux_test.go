package node

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// On another node the one in use may go on for a while, and its apiserver has to read what is written here.
func TestWhatThePluginInUseCannotOpenIsNotTakenInPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	give := func(revision uint64, keys string) {
		d := r.draft(revision, 1)
		d.Plugins[0] = r.command(keys)
		d.Plugins[0].Settings = []byte(strings.Replace(string(d.Plugins[0].Settings), "serve,", "serve, --hold-down=0s,", 1))
		r.give(d)
	}
	give(1, r.read(r.keys(1)))
	r.follows()
	r.start()
	r.until("it is in effect", settled(1, 1))
	more := r.folder + "/more.json" // it opens what the former wraps, and wraps with a KEK that that one lacks
	require.NoError(t, os.WriteFile(more, []byte(r.read(r.keys(1))), 0o600))
	said, err := exec.Command(realPlugin(t), "keyfile", "rotate", "--key-file", more).CombinedOutput()
	require.NoError(t, err, string(said))
	give(2, r.read(more))
	after := r.until("it is told", func(r *Report) bool {
		return settled(2, 1)(r) || waits("revision 2 waits for keyID 1: its plugin is tried again: have the plugin in use open what this one has wrapped: it cannot")(r)
	})
	require.Equal(t, uint64(1), after.InEffect.Revision)
}
