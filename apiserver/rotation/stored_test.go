package rotation

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/kube-atrest/atrest/internal/stored"
)

// patience bounds each wait. A stock apiserver looks at its file once a minute, and a
// rotation changes it three times.
const patience = 6 * time.Minute

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
			require.NotContains(t, string(kv.Value), password)
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
func (c *cluster) requireStored(t *testing.T, l *load, provider, keyID string) {
	t.Helper()
	l.end()
	counts := c.stored(t)
	require.Equal(t, map[under]int{{provider, keyID}: 1}, some(counts), "%v", counts)
	require.GreaterOrEqual(t, counts[under{provider, keyID}], len(l.book.open().acked))
}

// some is a count of 1 where there is any.
func some(counts map[under]int) map[under]int {
	some := map[under]int{}
	for u := range counts {
		some[u] = 1
	}
	return some
}

// requireRead reads every Secret through every apiserver, one by one from etcd and all
// from the watch cache.
func (c *cluster) requireRead(t *testing.T, l *load) {
	t.Helper()
	l.end()
	at := l.book.open()
	for _, client := range l.clients {
		var all errgroup.Group
		all.SetLimit(8)
		for name := range at.acked {
			all.Go(func() error { return l.get(name, fromEtcd)(t.Context(), client) })
		}
		require.NoError(t, all.Wait(), client.apiserver)
		require.NoError(t, l.list(l.cached)(t.Context(), client), client.apiserver)
	}
}

// until tries condition, in the test's own goroutine so that it may end the test, until
// it holds.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for !condition() {
		select {
		case <-pause.C:
		case <-ctx.Done():
			require.FailNow(t, "it did not come true that "+what)
		}
	}
}
