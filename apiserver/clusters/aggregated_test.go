package clusters

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const wardlePrefix = "/registry/wardle.example.com"

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
	c := newAggregated(t)
	load := c.startLoad()
	text, code := c.run("atrest status")
	require.Zero(t, code, text)
	for _, value := range c.stored() {
		require.True(t, bytes.HasPrefix(value, []byte("{")), "plain yet: %.20q", value)
	}

	text, code = c.run("--to kms:one", quickly)
	require.Zero(t, code, text)
	require.Contains(t, text, "finished: ")
	for key, value := range c.stored() {
		require.True(t, bytes.HasPrefix(value, []byte("k8s:enc:kms:v2:one:")), "%s: %.20q", key, value)
	}
	text, code = c.run("atrest retire")
	require.Equal(t, 1, code, "it is in use: %s", text)
	require.Contains(t, text, "flunders.wardle.example.com: ")

	before := c.pids()
	text, code = c.run("--to kms:two", quickly)
	require.Zero(t, code, text)
	load.end()
	for key, value := range c.stored() {
		require.True(t, bytes.HasPrefix(value, []byte("k8s:enc:kms:v2:two:")), "%s: %.20q", key, value)
	}
	require.Equal(t, before, c.pids(), "none was restarted for it")
	text, code = c.runOn(c.nodes[0], "atrest audit")
	require.Zero(t, code, text)
	require.Contains(t, text, "flunders.wardle.example.com")
	text, code = c.run("atrest retire")
	require.Zero(t, code, text)
	require.Contains(t, text, `yes, KMS provider "one" may go`)
	c.mistakes()
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
