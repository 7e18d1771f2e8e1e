package rotation

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

func TestAnotherPluginTakesOverWhileTheClusterServes(t *testing.T) {
	old, new := newKeys(t), newKeys(t)
	c := startCluster(t, "old", old, harness.HurriedServer)
	c.startPlugins(t, "new", new)
	load := startLoad(t, c)
	load.more(t, 20)

	plan := c.rotate(t, "two-plugins", append(c.toNew(), "--plan")...)
	plan.wait(t)
	require.Equal(t, map[under]int{{"old", old.newest(t)}: 1}, some(c.stored(t)))

	c.rotate(t, "two-plugins", c.toNew()...).wait(t)
	load.more(t, 20)
	for _, n := range c.nodes {
		c.stopPlugin(n, "old")
	}
	load.more(t, 20)
	load.requireUndisturbed(t)
	c.requireStored(t, load, "new", new.newest(t))
	c.requireRead(t, load)
	c.restart()
	c.requireRead(t, load)
}

func TestAPluginChangesItsKeyWhileTheClusterServes(t *testing.T) {
	k := newKeys(t)
	c := startCluster(t, "kms", k, harness.HurriedServer)
	load := startLoad(t, c)
	load.more(t, 20)
	files := c.files(t)

	rotation := c.rotate(t, "one-plugin", "--provider", "kms", "--from", "current")
	rotation.says(t, "not_rotated")
	k.rotate(t)
	rotation.wait(t)
	load.more(t, 20)
	load.requireUndisturbed(t)
	c.requireStored(t, load, "kms", k.newest(t))
	require.Equal(t, files, c.files(t), "no file is touched")

	for _, n := range c.nodes {
		c.replacePlugin(t, n, "kms", newestPlugin, k.Path())
	}
	c.restart()
	c.requireRead(t, load)
}

// The plugin of one apiserver hears late of the new version.
func TestNothingIsRewrittenWhileOneApiserverIsHeldBack(t *testing.T) {
	k, held := newKeys(t), newKeys(t)
	k.copyTo(t, held)
	before := k.newest(t)
	c := startCluster(t, "kms", k, harness.HurriedServer)
	const late = 1
	c.replacePlugin(t, c.nodes[late], "kms", laggingPlugin, held.Path(), k.Path())
	load := startLoad(t, c)
	load.more(t, 20)

	k.rotate(t)
	rotation := c.rotate(t, "one-plugin", "--provider", "kms")
	rotation.says(t, "divergent")
	require.Regexp(t, `divergent.*`+names[late], rotation.Log())
	load.more(t, 200)
	require.Zero(t, rotation.state(t).Round, "a migration has begun")
	require.GreaterOrEqual(t, c.stored(t)[under{"kms", before}], *objects)
	require.False(t, rotation.finished(t))

	k.copyTo(t, held)
	rotation.wait(t)
	load.requireUndisturbed(t)
	c.requireStored(t, load, "kms", k.newest(t))
	c.requireRead(t, load)
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
