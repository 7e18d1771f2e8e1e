package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

func TestAChangedFileTakesEffectWhileTheServerRuns(t *testing.T) {
	t.Parallel()
	etcd, plugin := harness.Etcd(t), harness.StartPlugin(t)
	config := harness.NewConfigFile(t, harness.Entry("secrets", plugin.KMS("one")))
	server := harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()})
	writeSecret(t, server, "before", password)
	before := sealedAt(t, etcd, secretKey("before"), "one", password)
	plain := writeConfigMap(t, server)

	config.Write(harness.Entry("secrets, configmaps, secret", plugin.KMS("one"), harness.Identity))
	require.Eventually(t, func() bool {
		return strings.HasPrefix(string(rawAt(t, etcd, configMapKey(writeConfigMap(t, server)))), "k8s:enc:")
	}, patience, tick)

	name := writeConfigMap(t, server)
	after := sealedAt(t, etcd, configMapKey(name), "one", password)
	require.Equal(t, before.Source, after.Source, "a provider that did not change keeps its DEK")
	require.Equal(t, password, readConfigMap(t, server, name))
	require.Equal(t, password, readConfigMap(t, server, plain))
	require.Equal(t, password, readSecret(t, server, "before"))
	require.Equal(t, 1.0, reloads(t, server, "success"))
	require.Zero(t, reloads(t, server, "failure"))
	require.Eventually(t, func() bool { // the server's own list of resources tells a typing error
		return strings.Contains(server.Log(), `this server has no resource \"secret\"`)
	}, patience, tick)
}

func TestAFileThatCannotBeUsedLeavesTheRunningConfigurationAlone(t *testing.T) {
	t.Parallel()
	etcd, plugin := harness.Etcd(t), harness.StartPlugin(t)
	config := harness.NewConfigFile(t, harness.Entry("secrets", plugin.KMS("one")))
	server := harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()})
	writeSecret(t, server, "before", password)

	config.Write(harness.Entry("secrets", "aescbc: {keys: [{name: short, secret: "+badKey+"}]}"))
	require.Eventually(t, func() bool { return reloads(t, server, "failure") > 0 }, patience, tick)

	writeSecret(t, server, "after", password)
	sealedAt(t, etcd, secretKey("after"), "one", password)
	require.Equal(t, password, readSecret(t, server, "before"))
	require.NotContains(t, server.Log(), badKey)

	config.Write(harness.Entry("secrets", plugin.KMS("two"), plugin.KMS("one")))
	require.Eventually(t, func() bool { return reloads(t, server, "success") == 1 }, patience, tick)
	touchSecret(t, server, "before")
	sealedAt(t, etcd, secretKey("before"), "two", password)
}

// reloads reads how many reloads ended with status from the server's metrics.
func reloads(t *testing.T, s *harness.Server, status string) float64 {
	t.Helper()
	return metric(t, s, "apiserver_encryption_config_controller_automatic_reloads_total", "status", status)
}
