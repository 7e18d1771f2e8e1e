package clusters

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// newEncrypted is a cluster as the page of kubeadm leaves it, for another page.
func newEncrypted(t *testing.T, recipe string, nodes ...string) *kubeadm {
	t.Helper()
	c := newKubeadm(t, "kubeadm.md", nodes...)
	for i, block := range c.page.blocks["sh"] { // that page has a node more
		c.page.blocks["sh"][i] = strings.ReplaceAll(block, "cp-1,cp-2,cp-3", strings.Join(nodes, ","))
	}
	c.create()
	c.enable()
	text, code := c.run("atrest rotate", quickly)
	require.Zero(t, code, text)
	c.page = readPage(t, recipe)
	return c
}

// bound starts a pod that the apiserver has told the kubelet of, with the Secret that it has
// for a volume. The error is what the kubelet waits for.
func (k *kubelet) bound(bound *corev1.Pod) error {
	pod := *bound.DeepCopy()
	for i, v := range pod.Spec.Volumes {
		if v.Secret == nil {
			continue
		}
		secret, err := k.server.Kube.CoreV1().Secrets(pod.Namespace).Get(k.t.Context(), v.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		from, kind := "/var/lib/kubelet/"+v.Name, corev1.HostPathDirectoryOrCreate
		require.NoError(k.t, os.MkdirAll(k.on(from), 0o700))
		for name, content := range secret.Data {
			require.NoError(k.t, os.WriteFile(k.on(filepath.Join(from, name)), content, 0o600))
		}
		pod.Spec.Volumes[i].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: from, Type: &kind}}
	}
	k.start(pod.Name, pod)
	return nil
}

// A plugin that has its key in a Secret is in the circle.
func TestAllNodesOffAndOnAndANodeThatJoins(t *testing.T) {
	t.Parallel()
	c := newEncrypted(t, "reboot.md", "cp-1", "cp-2")
	var pod corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict([]byte(c.page.block(t, "yaml", "kms-one")), &pod))
	key, err := os.ReadFile(c.keys.Path())
	require.NoError(t, err)
	_, err = c.nodes[0].server.Kube.CoreV1().Secrets("kube-system").Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kms-key"}, Data: map[string][]byte{"kek.json": key}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, k := range c.nodes { // it is no static pod any more, and works as well
		k.stop(k.plugins["kms-one.yaml"])
		require.NoError(t, os.Remove(filepath.Join(k.manifests(), "kms-one.yaml")))
		require.NoError(t, k.bound(&pod))
		k.server.WaitFor("/readyz")
	}
	c.reads()

	c.off()
	for _, k := range c.nodes {
		k.sync()
	}
	var kubelets errgroup.Group
	for _, k := range c.nodes {
		k.server.WaitFor("/livez")
		kubelets.Go(func() error { // client-go asks ten times, a second apart
			if k.bound(&pod) == nil {
				return fmt.Errorf("%s: the Secret cannot be read, as the plugin does not run", k.name)
			}
			return nil
		})
		status, _ := k.server.Get("/readyz")
		require.Equal(t, 500, status)
	}
	require.NoError(t, kubelets.Wait())

	for _, k := range c.nodes { // by hand, with the key from where it came
		k.plugins["by hand"] = harness.Run(t, harness.KeyFilePlugin, c.keys.Path(), "unix://"+k.on("/run/kmsplugin/one.sock"))
	}
	c.ready()
	c.reads()
	c.joinsWithout()
	require.Empty(t, c.page.unused())
}

// joinsWithout has a node join without the configuration, which serves and stores plain text,
// and one whose plugin has a key of its own: check says it before.
func (c *kubeadm) joinsWithout() {
	t := c.t
	t.Helper()
	c.config = ownConfiguration()
	without := c.add("cp-3")
	text, code := c.runOn(without, "--join", separate)
	require.Equal(t, 1, code, text)
	require.Contains(t, text, "this node has no ")

	without.sync()
	without.server.WaitFor("/livez")
	status, _ := without.server.Get("/readyz")
	require.Equal(t, 500, status)
	_, err := without.server.Kube.CoreV1().Secrets("default").Get(t.Context(), "one", metav1.GetOptions{})
	require.Error(t, err)
	_, err = without.server.Kube.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	text, code = c.shell("atrest audit --resource secrets --config " + c.nodes[0].on("/etc/kubernetes/encryption/config.yaml"))
	require.Equal(t, 1, code, text)
	require.Contains(t, text, "/registry/secrets/default/plain")
	text, code = c.shell("atrest status --etcd --separate-configs --apiservers cp-1,cp-2,cp-3")
	require.NotZero(t, code)
	require.Contains(t, text, "cp-3")
	without.off()

	// With the file, and a plugin whose key is its own.
	config, err := os.ReadFile(c.nodes[0].on("/etc/kubernetes/encryption/config.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(without.on("/etc/kubernetes/encryption"), 0o700))
	require.NoError(t, os.MkdirAll(without.on("/run/kmsplugin"), 0o700))
	require.NoError(t, os.WriteFile(without.on("/etc/kubernetes/encryption/config.yaml"), []byte(strings.ReplaceAll(string(config), "/cp-1/", "/cp-3/")), 0o600))
	own := c.newKeys()
	harness.Run(t, harness.KeyFilePlugin, own.Path(), "unix://"+without.on("/run/kmsplugin/one.sock"))
	require.Eventually(t, func() bool {
		text, code = c.runOn(without, "--join", separate)
		return strings.Contains(text, "this node has another key_id of one than the others")
	}, time.Minute, time.Second)
	require.Equal(t, 1, code, text)
}
