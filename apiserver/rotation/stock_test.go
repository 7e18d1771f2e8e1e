package rotation

import (
	"testing"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// Kubernetes' own apiserver asks its plugins for their key_id when its check is read and
// 20 s have passed since it was read last, and looks at its file once a minute.
func TestAStockApiserverIsOneOfThree(t *testing.T) {
	t.Parallel()
	t.Run("one plugin", func(t *testing.T) {
		k := newKeys(t)
		c := startCluster(t, "kms", k, harness.StockServer, harness.HurriedServer)
		load := startLoad(t, c)
		command := c.rotate(t, "one-plugin", "--provider", "kms", "--from", "current")
		command.says(t, "not rotated")
		k.rotate(t)
		command.wait(t)
		load.RequireUndisturbed(t)
		c.requireStored(t, load, "kms", k.newest(t))
		load.RequireRead(t)
		c.requireWell(t)
	})
	t.Run("two plugins", func(t *testing.T) {
		if !*long {
			t.Skip("it takes the three minutes in which a stock apiserver looks at its file three times: run it with -long")
		}
		old, new := newKeys(t), newKeys(t)
		c := startCluster(t, "old", old, harness.StockServer, harness.HurriedServer)
		c.startPlugins(t, "new", new)
		load := startLoad(t, c)
		c.rotate(t, "two-plugins", c.toNew()...).wait(t)
		load.RequireUndisturbed(t)
		c.requireStored(t, load, "new", new.newest(t))
		for _, n := range c.nodes {
			c.stopPlugin(n, "old")
		}
		load.RequireRead(t)
		c.restart()
		load.RequireRead(t)
	})
}
