package rotation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
)

// kubelet restarts an apiserver when it is asked to by a file of its name, as the one of a
// node does when a manifest changes: in good order, and some time after whoever asked has
// gone on.
type kubelet struct {
	*cluster
	load   *traffic.Load
	folder string
	over   map[string]func() // those that were restarted and are not back yet
	order  []string
}

func newKubelet(t *testing.T, c *cluster, l *traffic.Load) *kubelet {
	t.Helper()
	return &kubelet{cluster: c, load: l, folder: t.TempDir(), over: map[string]func(){}}
}

// hook is the program that asks it.
func (k *kubelet) hook(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\nset -eu\n: > %s/$ATREST_APISERVER\n", k.folder), 0o700))
	return path
}

// work restarts who is asked for, and requires that all others are ready then. It reports
// whether it did.
func (k *kubelet) work(t *testing.T) (restarted string) {
	t.Helper()
	for _, n := range k.nodes {
		if over := k.over[n.name]; over != nil && n.ready() {
			over()
			delete(k.over, n.name)
		}
	}
	for _, n := range k.nodes {
		if os.Remove(filepath.Join(k.folder, n.name)) != nil {
			continue
		}
		for _, other := range k.nodes {
			require.True(t, other == n || other.ready(), "%s is restarted while %s is not ready", n.name, other.name)
		}
		t.Logf("restart of %s", n.name)
		k.over[n.name] = k.load.Outage(n.name)
		k.order = append(k.order, n.name)
		n.Stop()
		n.Restart()
		restarted = n.name
	}
	return restarted
}

// Apiservers without automatic reload, of both kinds, are restarted one after the other,
// also when the command is killed while one is away. No request to another one fails.
func TestApiserversThatDoNotFollowTheirFilesAreRestarted(t *testing.T) {
	c := plan{provider: "kms", keys: newKeys(t), resources: []string{"secrets"}, programs: []string{harness.StockServer, harness.HurriedServer}, fixed: true}.start(t)
	load := startLoad(t, c)
	k := newKubelet(t, c, load)
	r := c.rotate(t, "--to=aescbc", "--restart-hook", k.hook(t), "--retry-after", "1m")
	killed := false
	traffic.Until(t, "the rotation is finished", func() bool {
		if k.work(t) == "cp-2" && !killed {
			killed = true
			r.Kill()
			r.Restart()
		}
		return r.finished(t)
	})
	traffic.Until(t, "all are back", func() bool { return k.work(t) == "" && len(k.over) == 0 })
	t.Logf("atrest rotate:\n%s", r.Log())
	require.Equal(t, strings.Fields(strings.Repeat("cp-1 cp-2 cp-3 ", 3)), k.order)
	load.More(t, 20)
	load.RequireNoFailure(t)
	c.requireBeginning(t, "k8s:enc:aescbc:v1:key-")
	load.RequireRead(t)
}
