package clusters

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheRecipeForAManagedControlPlane(t *testing.T) {
	c := newEncrypted(t, "managed.md", "cp-1")
	audit := "atrest audit --strict --decrypt --resource secrets --config " + c.nodes[0].on("/etc/kubernetes/encryption/config.yaml")
	text, code := c.shell(audit)
	require.Zero(t, code, text)

	// They change the key.
	k := c.nodes[0]
	_, err := c.keys.Rotate(t.Context())
	require.NoError(t, err)
	k.copy(c.keys.Path(), "/etc/kubernetes/kms/kek.json")
	k.stop(k.plugins["kms-one.yaml"])
	delete(k.running, "kms-one.yaml")
	k.sync()
	text, code = c.shell(audit)
	require.Equal(t, 1, code, text)

	text, code = c.run("--without-etcd")
	require.Zero(t, code, text)
	require.Contains(t, text, c.page.block(t, "console", "nothing was proved"))
	text, code = c.shell(audit)
	require.Zero(t, code, "all the same it is so: %s", text)
}
