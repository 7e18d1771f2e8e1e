package e2e

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

func TestMetricsKeepTheNamesThatDashboardsKnow(t *testing.T) {
	t.Parallel()
	etcd, plugin := harness.Etcd(t), harness.StartPlugin(t)
	config := harness.NewConfigFile(t, harness.Entry("secrets", plugin.KMS("one")))
	server := harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()})
	writeSecret(t, server, "first", password)
	require.Equal(t, password, readSecret(t, server, "first"))

	keyID := sealedAt(t, etcd, secretKey("first"), "one", password).Source.KeyID
	hash := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(keyID)))
	for _, direction := range []string{"to_storage", "from_storage"} {
		require.Eventually(t, func() bool { // recorded every few seconds, off the way of a value
			return metric(t, server, "apiserver_storage_transformation_operations_total", "resource", "secrets", "status", "OK",
				"transformation_type", direction, "transformer_prefix", "k8s:enc:kms:v2:one:") > 0
		}, patience, tick)
		require.Eventually(t, func() bool {
			return metric(t, server, "apiserver_envelope_encryption_key_id_hash_total",
				"key_id_hash", hash, "provider_name", "one", "transformation_type", direction) > 0
		}, patience, tick)
	}
	require.Equal(t, 1.0, metric(t, server, "apiserver_encryption_config_controller_last_config_info"))
}

// metric adds up the server's samples of this name that have these labels.
func metric(t *testing.T, s *harness.Server, name string, labels ...string) (sum float64) {
	t.Helper()
	_, text := s.Get("/metrics")
lines:
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		for i := 0; i < len(labels); i += 2 {
			if !strings.Contains(line, fmt.Sprintf("%s=%q", labels[i], labels[i+1])) {
				continue lines
			}
		}
		var sample float64
		_, err := fmt.Sscan(line[strings.LastIndexByte(line, '}')+1:], &sample)
		require.NoError(t, err)
		sum += sample
	}
	return sum
}
