package rotation

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/migrate"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

func (c *cluster) push(t *testing.T, providers ...string) {
	t.Helper()
	for _, n := range c.nodes {
		n.config.Write(c.entry(n, providers...))
	}
	for _, n := range c.nodes {
		content, err := os.ReadFile(n.config.Path)
		require.NoError(t, err)
		hash := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
		until(t, n.name+" has it", func() bool {
			var s atrest.Status
			_, text := n.Get(atrest.StatusPath)
			require.NoError(t, json.Unmarshal([]byte(text), &s))
			return s.ConfigHash == hash
		})
	}
}

func TestByHand(t *testing.T) {
	old, new := newKeys(t), newKeys(t)
	c := startCluster(t, "old", old, harness.HurriedServer)
	l := startLoad(t, c)
	l.more(t, 50)
	c.startPlugins(t, "new", new)
	c.push(t, "old", "new")
	l.more(t, 50)
	c.push(t, "new", "old")
	l.more(t, 50)
	t.Log(c.stored(t))
	m, err := migrate.NewCluster(c.nodes[0].Config, clock.RealClock{})
	require.NoError(t, err)
	done, err := m.Rewrite(t.Context(), secrets, migrate.Checkpoint{}, migrate.Options{})
	require.NoError(t, err)
	t.Logf("%+v", done.Counts)
	t.Log(c.stored(t))
	c.push(t, "new")
	l.more(t, 50)
	for _, n := range c.nodes {
		c.stopPlugin(n, "old")
	}
	l.more(t, 50)
	l.requireUndisturbed(t)
	c.requireStored(t, l, "new", new.newest(t))
	c.requireRead(t, l)
	c.restart()
	c.requireRead(t, l)
}
