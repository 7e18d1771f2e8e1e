package clusters

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// wardlePrefix is the --etcd-prefix of the page, and whileWritten are the flags of a rotation
// that is not to last long, while others write.
const (
	wardlePrefix = "/wardle"
	whileWritten = "--hold 1s --interval 200ms --timeout 3m"
)

// stored are the values of the flunders as etcd has them.
func (c *aggregated) stored() map[string][]byte {
	c.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.options.Endpoint()}})
	require.NoError(c.t, err)
	defer client.Close()
	got, err := client.Get(c.t.Context(), wardlePrefix+"/wardle.example.com/flunders/", clientv3.WithPrefix())
	require.NoError(c.t, err)
	all := map[string][]byte{}
	for _, kv := range got.Kvs {
		all[string(kv.Key)] = kv.Value
	}
	require.Greater(c.t, len(all), still)
	return all
}

func TestTheRecipeForAnAggregatedAPIServer(t *testing.T) {
	t.Parallel()
	c := newAggregated(t)
	_, err := c.main.Kube.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	load := c.startLoad()
	text, code := c.run("atrest status")
	require.Zero(t, code, text)
	for _, value := range c.stored() {
		require.True(t, bytes.HasPrefix(value, []byte("{")), "plain yet: %.20q", value)
	}

	text, code = c.run("--to kms:one", whileWritten)
	require.Zero(t, code, text)
	require.Contains(t, text, "finished: ")
	for key, value := range c.stored() {
		require.True(t, bytes.HasPrefix(value, []byte("k8s:enc:kms:v2:one:")), "%s: %.20q", key, value)
	}
	text, code = c.run("atrest retire one --apiservers wardle-1,wardle-2")
	require.Equal(t, 1, code, "it is in use: %s", text)
	require.Contains(t, text, "flunders.wardle.example.com: ")

	before := c.pids()
	text, code = c.run("--to kms:two", whileWritten)
	require.Zero(t, code, text)
	load.end()
	require.Contains(t, text, `may be stopped: the plugin of provider "one"`)
	require.NotContains(t, text, "may be disabled", "the Secrets of the kube-apiserver are under its key")
	for key, value := range c.stored() {
		require.True(t, bytes.HasPrefix(value, []byte("k8s:enc:kms:v2:two:")), "%s: %.20q", key, value)
	}
	require.Equal(t, before, c.pids(), "none was restarted for it")
	text, code = c.runOn(c.nodes[0], "atrest audit")
	require.Zero(t, code, text)
	require.Contains(t, text, "flunders.wardle.example.com")
	c.retires(load)
	c.mistakes()
	text, code = c.run("ETCDCTL_CACERT", "\natrest audit")
	require.NotZero(t, code, "this etcd is elsewhere: %s", text)
	require.Contains(t, text, "etcd-ca.crt")
	require.Equal(t, []string{"go get github.com/kube-atrest/atrest\ngo build -o wardle-server .\n"}, c.page.unused(), "which is what the test does with the source at hand")
}

// retires has the first plugin retired, as the servers alone tell and with the
// kube-apiserver, once each of them has something in etcd that it wrote.
func (c *aggregated) retires(load *flunderLoad) {
	t := c.t
	t.Helper()
	for i, client := range load.clients[1:] {
		_, err := client.Patch(t.Context(), fmt.Sprintf("flunder-%d", still+i), types.MergePatchType, []byte(`{"spec":{"reference":"mine"}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	for _, with := range []string{"atrest retire one --apiservers wardle-1,wardle-2", "atrest retire one --apiservers cp-1,wardle-1,wardle-2"} {
		text, code := c.run(with)
		require.Zero(t, code, text)
		require.Contains(t, text, `yes, KMS provider "one" may go`)
		require.NotContains(t, text, "the aggregated apiserver")
	}
	text, code := c.shell("atrest retire main --apiservers cp-1,wardle-1,wardle-2 --without-apiservers wardle/api")
	require.Equal(t, 1, code, text)
	require.Contains(t, text, "apiserver cp-1: has it in its configuration")
}

// mistakes are those that the page tells of.
func (c *aggregated) mistakes() {
	t := c.t
	t.Helper()
	again := strings.NewReplacer("--state ./two", "--state ./again", "kms:two", "kms:three", "/two.sock", "/three.sock").Replace(c.page.block(t, "sh", "--to kms:two"))
	for without, said := range map[string]string{
		" --prefix " + wardlePrefix:       "does not have it as /registry/wardle.example.com/flunders/default/",
		" --without-apiservers any-other": "name all of them, and say --without-apiservers any-other",
		",wardle-2":                       "",
	} {
		require.Contains(t, again, without)
		text, code := c.shell(strings.TrimSpace(strings.Replace(again, without, "", 1)) + " --plan")
		if said == "" { // nobody knows of the other one, which is why the page says so
			require.Zero(t, code, text)
			continue
		}
		require.NotZero(t, code, text)
		require.Contains(t, text, said)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(c.work, "again")))
}
