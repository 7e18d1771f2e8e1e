package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/stored"
)

// A cluster's life in three servers: without encryption, with it, and with the other
// write mode.
func TestARestartedServerReadsWhatAllBeforeItWrote(t *testing.T) {
	t.Parallel()
	etcd, plugin := harness.Etcd(t), harness.StartPlugin(t)

	plain := harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd})
	writeSecret(t, plain, "plain", password)
	require.Contains(t, string(rawAt(t, etcd, secretKey("plain"))), password)
	plain.Stop()
	require.Zero(t, plain.Exit())

	config := harness.NewConfigFile(t, harness.Entry("secrets", plugin.KMS("one"), harness.Identity))
	counter := harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()})
	require.Equal(t, password, readSecret(t, counter, "plain"))
	writeSecret(t, counter, "counter", password)
	require.Equal(t, stored.SourceDEK, sealedAt(t, etcd, secretKey("counter"), "one", password).Source.Type)
	counter.Stop()
	require.Zero(t, counter.Exit())

	flags := append(config.Flags(), "--encryption-kms-dek-source=seed")
	seed := harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: flags})
	writeSecret(t, seed, "seed", password)
	require.Equal(t, stored.SourceSeed, sealedAt(t, etcd, secretKey("seed"), "one", password).Source.Type)
	for _, name := range []string{"plain", "counter", "seed"} {
		require.Equal(t, password, readSecret(t, seed, name), name)
	}
	touchSecret(t, seed, "plain")
	sealedAt(t, etcd, secretKey("plain"), "one", password)
}
