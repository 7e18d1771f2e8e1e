package clusters

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheRecipeForAManagedControlPlane(t *testing.T) {
	t.Parallel()
	c := newEncrypted(t, "managed.md", "cp-1", "cp-2")
	audit := "atrest audit --strict --decrypt --resource secrets --config " + c.nodes[0].on("/etc/kubernetes/encryption/config.yaml")
	text, code := c.shell(audit)
	require.Zero(t, code, text)

	// They change the key.
	status := "atrest status --separate-configs --apiservers cp-1,cp-2"
	text, _ = c.shell(status)
	former := regexp.MustCompile(`writes +([0-9a-f]{12})`).FindStringSubmatch(text)
	require.Len(t, former, 2, text)
	_, err := c.keys.Rotate(t.Context())
	require.NoError(t, err)
	for _, k := range c.nodes {
		k.copy(c.keys.Path(), "/etc/kubernetes/kms/kek.json")
		k.stop(k.plugins["kms-one.yaml"])
		delete(k.running, "kms-one.yaml")
		k.sync()
	}
	require.Eventually(t, func() bool {
		text, code = c.shell(status)
		return code != 1 && !strings.Contains(text, former[1])
	}, time.Minute, time.Second, "both plugins are there again, and both apiservers know of the key")
	text, code = c.shell(audit)
	require.Equal(t, 1, code, text)

	text, code = c.run("--without-etcd")
	require.Zero(t, code, text)
	require.Contains(t, text, c.page.block(t, "console", "nothing was proved"))
	text, code = c.shell(audit)
	require.Zero(t, code, "all the same it is so: %s", text)
	require.Empty(t, c.page.unused())
}
