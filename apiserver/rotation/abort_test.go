package rotation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
)

// A move that all apiservers have made is taken back, while the cluster serves: no request
// fails, every value can be read without what was new, and the files are what they were.
func TestEveryMoveIsTakenBackWhileTheClusterServes(t *testing.T) {
	t.Parallel()
	a, b := newKeys(t), newKeys(t)
	c := plan{provider: "a", keys: a, resources: []string{"secrets"}, programs: []string{harness.HurriedServer}, flags: []string{"--feature-gates=KMSv1=true"}}.start(t)
	c.startPlugins(t, "b", b)
	v1 := harness.StartKMSv1(t, "v1")
	v1 = v1[strings.Index(v1, "unix://"):]
	modes := c.modes(v1[:strings.Index(v1, `"`)])
	load := startLoad(t, c)
	froms, tos := modes[:1], modes[len(modes)-2:]
	if *long {
		froms, tos = modes, modes
	}
	for i, from := range froms {
		if i > 0 {
			c.rotate(t, from.flags[0], from.flags[1:]...).wait(t)
		}
		was := c.files(t)
		for _, to := range tos {
			if to.name == from.name {
				continue
			}
			there := c.rotate(t, to.flags[0], append(to.flags[1:], "--hold", "1h")...)
			there.says(t, "waiting: holding")
			load.More(t, 10)
			there.Kill()
			back := c.rotate(t, "abort", "--state", there.folder)
			traffic.Until(t, "the move is taken back to "+from.name+" from "+to.name, func() bool { return back.finished(t) })
			t.Logf("to %s from %s", from.name, to.name)
			load.More(t, 10)
			c.requireBeginning(t, from.begins)
			require.Equal(t, was, c.files(t))
		}
	}
	load.RequireUndisturbed(t)
	load.RequireRead(t)
	for _, n := range c.nodes {
		c.stopPlugin(n, "b")
	}
	if !*long {
		c.restart()
		load.RequireRead(t)
	}
}
