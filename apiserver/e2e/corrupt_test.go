package e2e

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// deletable is a server that deletes what it cannot read, if it is asked to. It has a
// Secret that is damaged, and a healthy one of a plugin that is away.
type deletable struct {
	*harness.Server
	etcd *etcd.Server
	away *faultplugin.Plugin
}

func startDeletable(t *testing.T, program string) *deletable {
	t.Helper()
	d := &deletable{etcd: harness.Etcd(t), away: faultplugin.Start(t)}
	config := harness.NewConfigFile(t, harness.Entry("secrets", kmsAt("one", faultplugin.Start(t).Endpoint()), kmsAt("old", d.away.Endpoint())))
	flags := append(config.Flags(), "--feature-gates=AllowUnsafeMalformedObjectDeletion=true")
	d.Server = harness.Start(t, harness.Spec{Program: program, Etcd: d.etcd, Flags: flags})
	writeSecret(t, d.Server, "damaged", password)
	writeSecret(t, d.Server, "healthy", password)

	d.away.Kill()
	d.change(t, "healthy", func(raw []byte) []byte {
		return bytes.Replace(raw, []byte("k8s:enc:kms:v2:one:"), []byte("k8s:enc:kms:v2:old:"), 1)
	})
	d.change(t, "damaged", func(raw []byte) []byte {
		raw[len("k8s:enc:kms:v2:one:")+20] ^= 1 // of the data, which comes first
		return raw
	})
	return d
}

// change changes a Secret in etcd.
func (d *deletable) change(t *testing.T, name string, change func([]byte) []byte) {
	t.Helper()
	before := rawAt(t, d.etcd, secretKey(name))
	after := change(bytes.Clone(before))
	require.NotEqual(t, before, after)
	_, err := d.etcd.Client().Put(t.Context(), secretKey(name), string(after))
	require.NoError(t, err)
}

// deleteAsCorrupt deletes what cannot be read.
func (d *deletable) deleteAsCorrupt(t *testing.T, name string) error {
	t.Helper()
	yes := true
	options := metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: &yes}
	return d.Kube.CoreV1().Secrets(namespace).Delete(t.Context(), name, options)
}

func (d *deletable) has(t *testing.T, name string) bool {
	t.Helper()
	found, err := d.etcd.Client().Get(t.Context(), secretKey(name))
	require.NoError(t, err)
	return found.Count == 1
}

// send sends a request once; client-go would send it again.
func (d *deletable) send(t *testing.T, method, query string) (status int, retryAfter, text string) {
	t.Helper()
	client, err := rest.HTTPClientFor(d.Config)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), method, d.Config.Host+"/api/v1/namespaces/"+namespace+"/secrets"+query, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, response.Header.Get("Retry-After"), string(body)
}

// What this library does otherwise.
func TestTheStockServerDeletesAHealthySecretInAnOutage(t *testing.T) {
	t.Parallel()
	d := startDeletable(t, stockServer)
	status, retryAfter, text := d.send(t, http.MethodGet, "/healthy")
	require.Equal(t, http.StatusInternalServerError, status, text)
	require.Empty(t, retryAfter)
	require.NoError(t, d.deleteAsCorrupt(t, "healthy"))
	require.False(t, d.has(t, "healthy"))
}

func TestAHealthySecretOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	d := startDeletable(t, kubeAPIServer)
	for _, request := range [][2]string{{http.MethodGet, "/healthy"}, {http.MethodDelete, "/healthy"}, {http.MethodGet, "?limit=500"}} {
		status, retryAfter, text := d.send(t, request[0], request[1])
		require.Equal(t, http.StatusServiceUnavailable, status, "%v: %s", request, text)
		require.Equal(t, "1", retryAfter)
		require.Contains(t, text, `provider \"old\": KMS plugin is unavailable`)
	}
	err := d.deleteAsCorrupt(t, "healthy")
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.True(t, d.has(t, "healthy"))

	status, retryAfter, text := d.send(t, http.MethodGet, "/damaged")
	require.Equal(t, http.StatusInternalServerError, status, text)
	require.Empty(t, retryAfter)
	require.NoError(t, d.deleteAsCorrupt(t, "damaged"))
	require.False(t, d.has(t, "damaged"))

	d.away.Serve()
	require.Equal(t, password, readSecret(t, d.Server, "healthy"), "the client tries again")
	d.requireCacheFilled(t)
}

// requireCacheFilled waits until what the cache serves goes on too.
func (d *deletable) requireCacheFilled(t *testing.T) {
	t.Helper()
	client := d.Kube.CoreV1().Secrets(namespace)
	var version string
	until(t, "the cache is filled", func() bool {
		list, err := client.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
			return false
		}
		version = list.ResourceVersion
		return len(list.Items) == 1
	})
	watching, err := client.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
	require.NoError(t, err)
	defer watching.Stop()
	writeSecret(t, d.Server, "after", password)
	require.Equal(t, watch.Added, (<-watching.ResultChan()).Type)
}
