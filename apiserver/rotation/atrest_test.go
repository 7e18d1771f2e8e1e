package rotation

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// command is "atrest rotate", a process that can be killed too.
type command struct {
	*harness.Process
	folder string
}

// rotate starts "atrest rotate" of a kind for the cluster, hurried as its servers are.
func (c *cluster) rotate(t *testing.T, kind string, args ...string) *command {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "state")
	all := append([]string{"rotate", kind,
		"--apiservers", strings.Join(names, ","), "--kubeconfig", c.kubeconfig(t), "--context", names[0],
		"--config", filepath.Join(c.configs, "{apiserver}.yaml"), "--endpoints", c.etcds[0].options.Endpoint(), "--rate", "0",
		"--state", folder, "--interval", "100ms", "--hold", "1s", "--retry-after", "1s"}, append(c.overrides(), args...)...)
	return &command{harness.RunFile(t, c.program, all...), folder}
}

// status is what "atrest status" ends with and says of the cluster.
func (c *cluster) status(t *testing.T) (code int, text string) {
	t.Helper()
	p := harness.RunFile(t, c.program, append([]string{"status", "--apiservers", strings.Join(names, ","), "--kubeconfig", c.kubeconfig(t), "--separate-configs",
		"--endpoints", c.etcds[0].options.Endpoint()}, c.overrides()...)...)
	<-p.Exited()
	t.Logf("atrest status:\n%s", p.Log())
	return p.Exit(), p.Log()
}

// requireWell has "atrest status" find that all are well, and agree.
func (c *cluster) requireWell(t *testing.T) {
	t.Helper()
	code, text := c.status(t)
	require.Zero(t, code, text)
	require.Contains(t, text, "All 3 apiservers are well, and agree on KMS as far as they tell.")
}

// toNew are the flags of a rotation from the provider old to the provider new.
func (c *cluster) toNew() []string {
	return []string{"--from", "old", "--to", "new", "--endpoint", c.endpoint("{apiserver}", "new")}
}

// finished reports whether the command has ended, which it has to do well.
func (r *command) finished(t *testing.T) bool {
	t.Helper()
	select {
	case <-r.Exited():
		require.Zero(t, r.Exit(), r.Log())
		return true
	default:
		return false
	}
}

// wait returns once the command has finished.
func (r *command) wait(t *testing.T) {
	t.Helper()
	traffic.Until(t, "the rotation is finished", func() bool { return r.finished(t) })
	t.Logf("atrest rotate:\n%s", r.Log())
}

// says returns once the command has said it.
func (r *command) says(t *testing.T, what string) {
	t.Helper()
	traffic.Until(t, "atrest rotate says "+what, func() bool {
		require.False(t, r.finished(t), r.Log())
		return strings.Contains(r.Log(), what)
	})
}

// state is what the command stored last, and nothing if it stored nothing yet.
func (r *command) state(t *testing.T) rotation.State {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.folder, "rotation.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return rotation.State{}
	}
	require.NoError(t, err)
	s, err := rotation.Decode(data)
	require.NoError(t, err)
	return s
}
