package clusters

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// talosctl stands in for the program: it reads files of a node, takes the document of a
// patch for the configuration of the kube-apiserver, and gives the snapshot that the test
// has put there.
const talosctl = `#!/bin/sh
set -eu
test "$1" = -n
node=MNT/$2
file=$node/system/secrets/kubernetes/kube-apiserver/encryptionconfig.yaml
case $3 in
read) cat "$node$4" ;;
etcd) cp "$node/db.snapshot" "$5" ;;
patch)
  test "$4 $5 $6 $7" = "machineconfig --patch @delete.yaml --patch"
  { printf 'apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n'; sed '1,/^config:/d; s/^  //' "${8#@}"; } > "$file.new"
  mv "$file.new" "$file" ;;
esac
`

// talos is a cluster whose nodes have the file where Talos has it.
type talos struct {
	*kubeadm
	revision int
}

const talosFolder = "/system/secrets/kubernetes/kube-apiserver"

func newTalos(t *testing.T) *talos {
	t.Helper()
	c := &talos{kubeadm: &kubeadm{newCluster(t, "talos.md"), ownConfiguration()}}
	script := strings.ReplaceAll(talosctl, "MNT", c.mnt)
	require.NoError(t, os.WriteFile(filepath.Join(c.bin, "talosctl"), []byte(script), 0o700))
	c.config["apiServer"] = map[string]any{
		"extraArgs":    []any{map[string]any{"name": "encryption-provider-config", "value": talosFolder + "/encryptionconfig.yaml"}},
		"extraVolumes": []any{map[string]any{"name": "secrets", "hostPath": talosFolder, "mountPath": talosFolder, "pathType": "Directory"}},
	}
	for _, name := range []string{"cp-1", "cp-2"} {
		k := c.node(name, "/etc/kubernetes/manifests")
		require.NoError(t, os.MkdirAll(k.on(talosFolder), 0o700))
		c.phase(k)
	}
	return c
}

// documents writes those of the page, with keys.
func (c *talos) documents() {
	c.t.Helper()
	added := c.page.block(c.t, "yaml", "# added.yaml")
	oldKey, newKey := "        - {name: key2, secret: OLD}\n", "        - {name: key-2026, secret: NEW}\n"
	require.Contains(c.t, added, oldKey+newKey)
	for name, text := range map[string]string{
		"delete.yaml": c.page.block(c.t, "yaml", "$patch: delete"), "added.yaml": added, "before.yaml": strings.Replace(added, newKey, "", 1),
		"swapped.yaml": strings.Replace(added, oldKey+newKey, newKey+oldKey, 1), "removed.yaml": strings.Replace(added, oldKey, "", 1),
	} {
		text = strings.NewReplacer("OLD", "MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=", "NEW", "MjIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI=").Replace(text)
		require.NoError(c.t, os.WriteFile(filepath.Join(c.work, name), []byte(text), 0o600))
	}
}

// patch gives a document to a node, which Talos has its kube-apiserver started again for.
func (c *talos) patch(k *kubelet, document string) {
	c.t.Helper()
	command := strings.NewReplacer("cp-1", k.name, "added.yaml", document).Replace(c.page.block(c.t, "sh", "patch machineconfig"))
	text, code := c.shell(strings.TrimSpace(command))
	require.Zero(c.t, code, text)
	c.revision++
	c.phase(k)
	manifest := filepath.Join(k.manifests(), "kube-apiserver.yaml")
	content, err := os.ReadFile(manifest)
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(manifest, fmt.Appendf(content, "# secrets version %d\n", c.revision), 0o600))
	k.sync()
}

// snapshot leaves one of etcd where the stand-in finds it.
func (c *talos) snapshot() {
	c.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.options.Endpoint()}})
	require.NoError(c.t, err)
	defer client.Close()
	from, err := client.Snapshot(c.t.Context())
	require.NoError(c.t, err)
	defer from.Close()
	content, err := io.ReadAll(from)
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(c.nodes[0].on("/db.snapshot"), content, 0o600))
}

func TestTheRecipeForTalos(t *testing.T) {
	t.Parallel()
	c := newTalos(t)
	c.documents()
	for _, k := range c.nodes {
		c.patch(k, "before.yaml")
	}
	c.ready()
	text, code := c.run("kube-apiserver/encryptionconfig.yaml\n")
	require.Zero(t, code, text)
	require.Contains(t, text, "name: key2", "which the documents have")
	c.create()
	for _, document := range []string{"added.yaml", "swapped.yaml"} {
		for i, k := range c.nodes {
			c.patch(k, document)
			c.ready()
			c.reads()
			text, code := c.run("atrest status")
			require.Equal(t, []int{1, 0}[i], code, "%s: %s", document, text)
		}
	}
	c.snapshot()
	text, code = c.run("etcd snapshot")
	require.Equal(t, 1, code, "nothing was rewritten yet: %s", text)
	text, code = c.run("--without-etcd")
	require.Zero(t, code, text)
	c.snapshot()
	text, code = c.run("etcd snapshot")
	require.Zero(t, code, text)
	for _, k := range c.nodes {
		c.patch(k, "removed.yaml")
		c.ready()
		c.reads()
	}
	text, code = c.shell("talosctl -n cp-1 read " + talosFolder + "/encryptionconfig.yaml > removed-config.yaml; atrest check removed-config.yaml --etcd")
	require.Zero(t, code, text)
	require.Empty(t, c.page.unused())
}
