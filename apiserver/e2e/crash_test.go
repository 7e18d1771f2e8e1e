package e2e

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// Each of the three is killed while Secrets are written, then all of them at once.
func TestWhatWasAcknowledgedOutlivesKill9(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	writes := streamSecrets(t, c.server)
	writes.requireAcknowledged(t)

	c.server.Kill()
	writes.requireRefused(t)
	c.server.Restart()
	writes.requireAcknowledged(t)

	c.plugin.Kill()
	waitForStatus(t, c.server, http.StatusInternalServerError, check)
	writes.requireAcknowledged(t) // the plugin is not needed to write
	c.plugin.Restart()
	c.server.WaitFor(check)
	writes.requireAcknowledged(t)

	c.etcd.Kill()
	writes.requireRefused(t)
	c.etcd.Restart()
	writes.requireAcknowledged(t)

	c.server.Kill()
	c.plugin.Kill()
	c.etcd.Kill()
	c.etcd.Restart()
	c.plugin.Restart()
	c.server.Restart()
	writes.requireAcknowledged(t)

	writes.end()
	c.requireRead(t, writes)
	c.requireSealed(t)
}

// cluster is three processes, any of which can be killed.
type cluster struct {
	server  *harness.Server
	plugin  *harness.Process
	etcd    *harness.Process
	options etcd.Options
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{options: etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), SocketDir: harness.SocketDir(t)}}
	c.etcd = harness.Run(t, etcdProgram, c.options.DataDir, c.options.SocketDir)

	keys, endpoint := filepath.Join(t.TempDir(), "keys"), "unix://"+filepath.Join(harness.SocketDir(t), "kms.sock")
	_, err := keyfile.At(keys).Create(t.Context())
	require.NoError(t, err)
	c.plugin = harness.Run(t, keyFileProgram, keys, endpoint)

	config := harness.NewConfigFile(t, harness.Entry("secrets", kmsAt("one", endpoint)))
	c.server = harness.Start(t, harness.Spec{Program: kubeAPIServer, Etcd: c.options, Flags: config.Flags()})
	return c
}

// requireRead reads every Secret through a server that has none of the keys of those
// before it in memory.
func (c *cluster) requireRead(t *testing.T, writes *stream) {
	t.Helper()
	for name, wanted := range writes.wanted() {
		got, err := c.server.Kube.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && !wanted.acknowledged {
			continue
		}
		require.NoError(t, err, name)
		require.Contains(t, wanted.values, string(got.Data["password"]), name)
	}
}

// requireSealed stops everything and looks at what is left in the folder of etcd: no
// value is plaintext, and no nonce was used twice with one key.
func (c *cluster) requireSealed(t *testing.T) {
	t.Helper()
	c.server.Stop()
	c.etcd.Stop()
	member, err := etcd.Start(t.Context(), c.options)
	require.NoError(t, err)
	t.Cleanup(member.Close)
	found, err := member.Client().Get(t.Context(), secretKey(""), clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)

	nonces, deks := map[string]bool{}, map[string]bool{}
	for _, kv := range found.Kvs {
		object := sealedAt(t, member, string(kv.Key), "one", password)
		nonce := string(object.Source.EncryptedDEK) + string(object.Data[:12])
		require.False(t, nonces[nonce], "the nonce of %s was used before", kv.Key)
		nonces[nonce], deks[string(object.Source.EncryptedDEK)] = true, true
	}
	require.Len(t, deks, 3, "each start of a server makes one DEK")
	t.Logf("%d Secrets under %d DEKs", len(nonces), len(deks))
}
