package rotation

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
	"github.com/kube-atrest/atrest/internal/hashed"
)

func TestAnotherPluginTakesOverWhileTheClusterServes(t *testing.T) {
	t.Parallel()
	old, new := newKeys(t), newKeys(t)
	c := startCluster(t, "old", old, harness.HurriedServer)
	c.startPlugins(t, "new", new)
	load := startLoad(t, c)
	load.More(t, 20)

	plan := c.rotate(t, "two-plugins", append(c.toNew(), "--plan")...)
	plan.wait(t)
	require.Equal(t, map[under]int{{"old", old.newest(t)}: 1}, some(c.stored(t)))

	c.rotate(t, "two-plugins", c.toNew()...).wait(t)
	load.More(t, 20)
	for _, n := range c.nodes {
		c.stopPlugin(n, "old")
	}
	load.More(t, 20)
	load.RequireUndisturbed(t)
	c.requireStored(t, load, "new", new.newest(t))
	load.RequireRead(t)
	c.requireWell(t)
	c.restart()
	load.RequireRead(t)
}

func TestAPluginChangesItsKeyWhileTheClusterServes(t *testing.T) {
	t.Parallel()
	k := newKeys(t)
	c := startCluster(t, "kms", k, harness.HurriedServer)
	load := startLoad(t, c)
	load.More(t, 20)
	files := c.files(t)

	command := c.rotate(t, "one-plugin", "--provider", "kms", "--from", "current")
	command.says(t, "not rotated")
	k.rotate(t)
	command.wait(t)
	load.More(t, 20)
	load.RequireUndisturbed(t)
	c.requireStored(t, load, "kms", k.newest(t))
	require.Equal(t, files, c.files(t), "no file is touched")

	for _, n := range c.nodes {
		c.replacePlugin(t, n, "kms", newestPlugin, k.Path())
	}
	c.restart()
	load.RequireRead(t)
}

// The plugin of one apiserver hears late of the new version.
func TestNothingIsRewrittenWhileOneApiserverIsHeldBack(t *testing.T) {
	t.Parallel()
	k, held := newKeys(t), newKeys(t)
	k.copyTo(t, held)
	before := k.newest(t)
	c := startCluster(t, "kms", k, harness.HurriedServer)
	const late = 1 // cp-2
	from := time.Now()
	c.replacePlugin(t, c.nodes[late], "kms", laggingPlugin, held.Path(), k.Path())
	traffic.Until(t, "the plugin is found", func() bool { return c.nodes[late].reaches("kms", from) })
	load := startLoad(t, c)
	load.More(t, 20)

	k.rotate(t)
	command := c.rotate(t, "one-plugin", "--provider", "kms", "--hold", "1s")
	command.says(t, "cp-1, cp-3 has "+hashed.ID(k.newest(t)))
	require.Contains(t, command.Log(), "cp-2 has "+hashed.ID(before))
	code, text := c.status(t)
	require.Equal(t, 1, code, text)
	require.Contains(t, text, "Not well: cp-2 has another key_id of kms than the others.")
	load.More(t, 300)
	require.Zero(t, command.state(t).Round, "a migration has begun")
	require.GreaterOrEqual(t, c.stored(t)[under{"kms", before}], *objects)
	require.False(t, command.finished(t))

	k.copyTo(t, held)
	command.wait(t)
	load.RequireUndisturbed(t)
	c.requireStored(t, load, "kms", k.newest(t))
	load.RequireRead(t)
}

// files are the configurations of all apiservers.
func (c *cluster) files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, n := range c.nodes {
		content, err := os.ReadFile(n.config.Path)
		require.NoError(t, err)
		all[filepath.Base(n.config.Path)] = string(content)
	}
	return all
}
