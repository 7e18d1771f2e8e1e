package clusters

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// kubeadm is a cluster that kubeadm made.
type kubeadm struct {
	*cluster
	config map[string]any // the ClusterConfiguration in kubeadm.yaml
}

func newKubeadm(t *testing.T, recipe string, nodes ...string) *kubeadm {
	t.Helper()
	c := &kubeadm{newCluster(t, recipe), ownConfiguration()}
	for _, name := range nodes {
		c.add(name).sync()
	}
	c.ready()
	c.upload()
	return c
}

// add makes a node with a manifest of its kube-apiserver, which is not started yet.
func (c *kubeadm) add(name string) *kubelet {
	k := c.node(name, "/etc/kubernetes/manifests")
	c.phase(k)
	return k
}

// phase is "kubeadm init phase control-plane apiserver": it writes the manifest.
func (c *kubeadm) phase(k *kubelet) {
	c.t.Helper()
	pod := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-apiserver", Namespace: "kube-system"},
		Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "kube-apiserver", Command: []string{"kube-apiserver"}}}}}
	container := &pod.Spec.Containers[0]
	container.Command = append(container.Command, fmt.Sprint("--service-cluster-ip-range=", c.config["networking"].(map[string]any)["serviceSubnet"]))
	server, _ := c.config["apiServer"].(map[string]any)
	args, _ := server["extraArgs"].([]any)
	for _, arg := range args {
		arg := arg.(map[string]any)
		container.Command = append(container.Command, "--"+arg["name"].(string)+"="+arg["value"].(string))
	}
	volumes, _ := server["extraVolumes"].([]any)
	for _, volume := range volumes {
		volume := volume.(map[string]any)
		name, readOnly := volume["name"].(string), volume["readOnly"] == true
		pathType := corev1.HostPathType(volume["pathType"].(string))
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: volume["mountPath"].(string), ReadOnly: readOnly})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: volume["hostPath"].(string), Type: &pathType}}})
	}
	manifest, err := yaml.Marshal(pod)
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(filepath.Join(k.manifests(), "kube-apiserver.yaml"), manifest, 0o600))
}

// enable takes the first steps of the page: the configuration, the flags and the plugins.
func (c *kubeadm) enable() {
	c.t.Helper()
	for _, k := range c.nodes {
		require.NoError(c.t, os.MkdirAll(k.on("/etc/kubernetes/encryption"), 0o700))
	}
	text, code := c.run("atrest enable")
	require.Zero(c.t, code, text)
	c.flags()
	text, _ = c.run("atrest status")
	require.NotContains(c.t, text, "PROBLEMS", text)
	for _, k := range c.nodes {
		c.plugin(k)
		k.sync()
	}
}

// plugin gives a node the key and the manifest of the page.
func (c *kubeadm) plugin(k *kubelet) {
	c.t.Helper()
	k.copy(c.keys.Path(), "/etc/kubernetes/kms/kek.json")
	require.NoError(c.t, os.WriteFile(filepath.Join(k.manifests(), "kms-one.yaml"), []byte(c.page.block(c.t, "yaml", "kms-one")), 0o600))
}

func TestTheRecipeForKubeadm(t *testing.T) {
	t.Parallel()
	c := newKubeadm(t, "kubeadm.md", "cp-1", "cp-2", "cp-3")
	c.create()
	c.enable()
	before := c.pids()
	text, code := c.run("atrest rotate", quickly)
	require.Zero(t, code, text)
	require.Contains(t, text, "finished: ")
	require.Equal(t, before, c.pids(), "no kube-apiserver was restarted for it")
	c.reads()

	// All nodes off and on, the plugins last.
	c.off()
	for _, k := range c.nodes {
		k.sync("kms-one.yaml")
	}
	c.ready()
	c.reads()

	c.joins()
	require.Empty(t, c.page.unused())
}

// joins has a node join: without the files first, which it does not start without.
func (c *kubeadm) joins() {
	c.t.Helper()
	c.config = c.uploaded()
	k := c.add("cp-4")
	content, err := os.ReadFile(filepath.Join(k.manifests(), "kube-apiserver.yaml"))
	require.NoError(c.t, err)
	require.Contains(c.t, string(content), "--audit-log-path=/var/log/audit.log", "what the cluster had is kept")
	require.Contains(c.t, string(content), "--service-cluster-ip-range=10.32.0.0/16")
	var pod corev1.Pod
	require.NoError(c.t, yaml.Unmarshal(content, &pod))
	_, err = k.args(pod)
	require.ErrorContains(c.t, err, "/etc/kubernetes/encryption is not a directory")
	text, code := c.runOn(k, "--join", separate)
	require.Equal(c.t, 1, code, text)
	require.Contains(c.t, text, "problem: this node has no "+k.on("/etc/kubernetes/encryption/config.yaml"))

	require.NoError(c.t, os.MkdirAll(k.on("/etc/kubernetes/encryption"), 0o700))
	config, err := os.ReadFile(c.nodes[0].on("/etc/kubernetes/encryption/config.yaml"))
	require.NoError(c.t, err)
	config = []byte(strings.ReplaceAll(string(config), "/cp-1/", "/cp-4/"))
	require.NoError(c.t, os.WriteFile(k.on("/etc/kubernetes/encryption/config.yaml"), config, 0o600))
	text, code = c.runOn(k, "--join", separate)
	require.Equal(c.t, 1, code, "its plugin does not run: %s", text)
	c.plugin(k)
	require.NoError(c.t, os.MkdirAll(k.on("/run/kmsplugin"), 0o700))
	byHand := harness.Run(c.t, harness.KeyFilePlugin, k.on("/etc/kubernetes/kms/kek.json"), "unix://"+k.on("/run/kmsplugin/one.sock"))
	require.Eventually(c.t, func() bool { text, code = c.runOn(k, "--join", separate); return code == 0 }, time.Minute, time.Second)
	require.Contains(c.t, text, "may join: cp-1, cp-2, cp-3")
	byHand.Stop()
	k.sync("kms-one.yaml")
	k.server.WaitFor("/readyz")
	c.reads()
	text, code = c.run("atrest status", separate)
	require.Equal(c.t, 2, code, "the new one is not named: %s", text)
	require.Contains(c.t, text, "cp-4")
}
