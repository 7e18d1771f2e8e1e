package node

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// As env(1) does, which gives a plugin its environment.
func TestAPluginThatBeganAsAnotherProgramIsEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const env = "/usr/bin/env"
	content, err := os.ReadFile(env)
	require.NoError(t, err)
	d := r.draft(1, 1)
	d.Plugins[0].Settings = []byte("apiVersion: " + bundle.APIVersion + "\nkind: " + bundle.SettingsKind + "\nprogram: {path: " + env + ", sha256: \"" + hashOf(content) + "\"}\n" +
		"command:\n  kek: a key file\n  arguments: [A=b, " + realPlugin(t) + ", keyfile, serve, --listen, $(endpoint), --key-file, " + r.keys(1) + "]\n")
	r.give(d)
	r.follows()
	r.start()
	r.until("it is in effect", settled(1, 1))
	pid := r.pid("1")
	found, _, err := r.node.disk.all()
	require.NoError(t, err)
	require.NoError(t, r.o.Runner.Stop(found[0].Spec, true))
	require.Eventually(t, func() bool { return !lives(pid) }, time.Minute, 10*time.Millisecond)
}
