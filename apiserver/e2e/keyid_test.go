package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// The plugin is asked once a minute while it is healthy, so this test takes up to a
// minute.
func TestWritesFollowThePluginsKeyID(t *testing.T) {
	t.Parallel()
	etcd, plugin := harness.Etcd(t), harness.StartPlugin(t)
	config := harness.NewConfigFile(t, harness.Entry("secrets", plugin.KMS("one")))
	server := harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()})

	writeSecret(t, server, "before", password)
	writeSecret(t, server, "touched", password)
	before := sealedAt(t, etcd, secretKey("before"), "one", password)

	require.NoError(t, plugin.Rotate(t.Context()))
	require.Eventually(t, func() bool {
		touchSecret(t, server, "touched")
		now := sealedAt(t, etcd, secretKey("touched"), "one", password)
		return now.Source.KeyID != before.Source.KeyID
	}, patience, tick)

	require.Equal(t, password, readSecret(t, server, "touched"))
	require.Equal(t, password, readSecret(t, server, "before"))
	require.Equal(t, before, sealedAt(t, etcd, secretKey("before"), "one", password), "reading rewrites nothing")
}
