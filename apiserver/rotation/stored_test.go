package rotation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kube-atrest/atrest/apiserver/internal/traffic"
	"github.com/kube-atrest/atrest/internal/stored"
)

// under is what an object is stored with.
type under struct{ provider, keyID string }

// stored counts what is encrypted, in every etcd and under every prefix, as the bytes there
// say. It requires that no Secret can be read there.
func (c *cluster) stored(t *testing.T) map[under]int {
	t.Helper()
	counts := map[under]int{}
	for _, m := range c.etcds {
		found, err := m.client.Get(t.Context(), "", clientv3.WithPrefix())
		require.NoError(t, err)
		for _, kv := range found.Kvs {
			rest, sealed := strings.CutPrefix(string(kv.Value), "k8s:enc:kms:v2:")
			require.True(t, sealed || !strings.Contains(string(kv.Key), "/secrets/"), "%s is not sealed", kv.Key)
			require.NotContains(t, string(kv.Value), traffic.Password)
			if sealed {
				counts[underOf(t, string(kv.Key), rest)]++
			}
		}
	}
	return counts
}

// underOf is what a value says before its ciphertext, without the prefix of all.
func underOf(t *testing.T, key, value string) under {
	t.Helper()
	provider, payload, _ := strings.Cut(value, ":")
	object, err := stored.Parse([]byte(payload))
	require.NoError(t, err, "%s", key)
	return under{provider, object.Source.KeyID}
}

// requireStored requires that all Secrets that the load made are there, and that nothing
// is encrypted in another way.
func (c *cluster) requireStored(t *testing.T, l *traffic.Load, provider, keyID string) {
	t.Helper()
	l.End()
	counts := c.stored(t)
	require.Equal(t, map[under]int{{provider, keyID}: 1}, some(counts), "%v", counts)
	require.GreaterOrEqual(t, counts[under{provider, keyID}], l.Acknowledged())
}

// some is a count of 1 where there is any.
func some(counts map[under]int) map[under]int {
	some := map[under]int{}
	for u := range counts {
		some[u] = 1
	}
	return some
}
