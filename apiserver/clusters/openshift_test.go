package clusters

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const openshiftFile = "secrets/encryption-config/encryption-config"

// oc stands in for OpenShift's own command: it notes which type is wanted, and hands out what
// the operators made, as they are in Secrets.
const oc = `#!/bin/sh -e
case $1 in
patch)
  test "$2 $3 $4 $5" = "apiserver cluster --type=merge -p"
  echo "$6" > MNT/wanted.json ;;
get)
  test "$2 $4 $5 $6 $7" = "secret -n openshift-config-managed -o jsonpath={.data.encryption-config}"
  base64 -w 0 "MNT/${3#encryption-config-}.json" ;;
esac
`

// openshift is a cluster whose operator gives each revision a folder of its own.
type openshift struct {
	*kubeadm
	revision int
}

func newOpenShift(t *testing.T) *openshift {
	t.Helper()
	c := &openshift{kubeadm: &kubeadm{newCluster(t, "openshift.md"), ownConfiguration()}}
	require.NoError(t, os.WriteFile(filepath.Join(c.bin, "oc"), []byte(strings.ReplaceAll(oc, "MNT", c.mnt)), 0o700))
	c.node("master-0", "/etc/kubernetes/manifests").prefix = "/kubernetes.io"
	return c
}

// fetch has the files of the operators where the page looks for them.
func (c *openshift) fetch() {
	c.t.Helper()
	text, code := c.run("oc get secret")
	require.Zero(c.t, code, text)
}

// roll has all kube-apiservers run with another revision, one after the other. The other
// apiservers have a file of the same form.
func (c *openshift) roll(providers string) {
	c.t.Helper()
	c.revision++
	folder := fmt.Sprintf("/etc/kubernetes/static-pod-resources/kube-apiserver-pod-%d", c.revision)
	mounted := "/etc/kubernetes/static-pod-resources"
	c.config["apiServer"] = map[string]any{
		"extraArgs":    []any{map[string]any{"name": "encryption-provider-config", "value": mounted + "/" + openshiftFile}},
		"extraVolumes": []any{map[string]any{"name": "resource-dir", "hostPath": folder, "mountPath": mounted, "pathType": "Directory"}},
	}
	var entries []string
	for _, resource := range []string{"configmaps", "secrets"} {
		entries = append(entries, fmt.Sprintf(`{"resources":[%q],"providers":[%s]}`, resource, providers))
	}
	file := fmt.Sprintf(`{"kind":"EncryptionConfiguration","apiVersion":"apiserver.config.k8s.io/v1","resources":[%s]}`, strings.Join(entries, ","))
	for _, apiserver := range []string{"openshift-kube-apiserver", "openshift-apiserver", "openshift-oauth-apiserver"} {
		require.NoError(c.t, os.WriteFile(filepath.Join(c.mnt, apiserver+".json"), []byte(file), 0o600))
	}
	c.fetch()
	for _, k := range c.nodes {
		k.copy(filepath.Join(c.work, "openshift-kube-apiserver.json"), folder+"/"+openshiftFile)
		c.phase(k)
		k.sync()
		k.server.WaitFor("/readyz")
	}
}

func TestTheRecipeForOpenShift(t *testing.T) {
	t.Parallel()
	const (
		identity = `{"identity":{}}`
		zero     = `{"aesgcm":{"keys":[{"name":"1","secret":"AAAAAAAAAAAAAAAAAAAAAA=="}]}}`
		second   = `{"aesgcm":{"keys":[{"name":"2","secret":"MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI="}]}}`
		third    = `{"aescbc":{"keys":[{"name":"3","secret":"MjIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI="}]}}`
	)
	c := newOpenShift(t)
	c.roll(identity + "," + zero)
	c.create()
	text, code := c.run("oc patch")
	require.Zero(t, code, text)
	wanted, err := os.ReadFile(filepath.Join(c.mnt, "wanted.json"))
	require.NoError(t, err)
	require.JSONEq(t, `{"spec":{"encryption":{"type":"aesgcm"}}}`, string(wanted))
	for _, providers := range []string{identity + "," + second + "," + zero, second + "," + zero + "," + identity} {
		c.roll(providers)
	}
	text, code = c.run("atrest check openshift-kube-apiserver.json --prefix /kubernetes.io --etcd")
	require.Equal(t, 1, code, "one is plain yet: %s", text)
	require.Contains(t, text, "in plaintext")
	c.rewrite()
	text, code = c.run("atrest check openshift-kube-apiserver.json --prefix /kubernetes.io --etcd")
	require.Zero(t, code, text)
	require.Contains(t, text, "usable: ")
	text, code = c.run("atrest audit --prefix /kubernetes.io")
	require.Zero(t, code, text)

	// A backup, and a week later.
	c.off()
	c.etcd.Stop()
	db, err := os.ReadFile(filepath.Join(c.options.DataDir, "member", "snap", "db"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(c.work, "snapshot.db"), db, 0o600))
	c.etcd.Restart()
	text, code = c.run("atrest check openshift-kube-apiserver.json --prefix /kubernetes.io --snapshot", "--list 1")
	require.Zero(t, code, text)
	for _, providers := range []string{second + "," + third + "," + identity, third + "," + second + "," + identity} {
		c.roll(providers)
	}
	c.rewrite()
	c.roll(third + "," + identity)
	text, code = c.run("atrest check openshift-kube-apiserver.json --prefix /kubernetes.io --snapshot", "--list 1")
	require.Equal(t, 1, code, "the file of today does not open the backup of last week: %s", text)
	text, code = c.run("atrest report")
	require.Zero(t, code, text)
	require.Contains(t, text, "aesgcm  2 ")
	require.Empty(t, c.page.unused())
}

// rewrite is what the operator's migrator does.
func (c *openshift) rewrite() {
	c.t.Helper()
	core := c.nodes[0].server.Kube.CoreV1()
	secrets, err := core.Secrets("").List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	for _, s := range secrets.Items {
		_, err := core.Secrets(s.Namespace).Update(c.t.Context(), &s, metav1.UpdateOptions{})
		require.NoError(c.t, err)
	}
	maps, err := core.ConfigMaps("").List(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	for _, m := range maps.Items {
		_, err := core.ConfigMaps(m.Namespace).Update(c.t.Context(), &m, metav1.UpdateOptions{})
		require.NoError(c.t, err)
	}
}
