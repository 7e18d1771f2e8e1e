package clusters

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// kubeadm is a cluster that kubeadm made, with its nodes as folders below /mnt.
type kubeadm struct {
	t       *testing.T
	page    page
	work    string // where commands are run
	mnt     string
	bin     string
	etcd    *harness.Process
	options etcd.Options
	nodes   []*kubelet
	config  map[string]any // the ClusterConfiguration in kubeadm.yaml
}

func newKubeadm(t *testing.T) *kubeadm {
	t.Helper()
	c := &kubeadm{t: t, page: readPage(t, "kubeadm.md"), work: t.TempDir(), mnt: harness.SocketDir(t), bin: t.TempDir(), config: ownConfiguration()}
	text, err := exec.CommandContext(t.Context(), "go", "build", "-o", c.bin, "github.com/kube-atrest/atrest/cmd/atrest").CombinedOutput()
	require.NoError(t, err, string(text))
	c.options = etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), SocketDir: harness.SocketDir(t)}
	c.etcd = harness.Run(t, harness.EtcdMember, c.options.DataDir, c.options.SocketDir)
	for _, name := range []string{"cp-1", "cp-2", "cp-3"} {
		k := c.add(name)
		k.sync()
	}
	c.ready()
	c.upload()
	return c
}

// add makes a node with a manifest of its kube-apiserver, which is not started yet.
func (c *kubeadm) add(name string) *kubelet {
	k := newKubelet(c.t, name, filepath.Join(c.mnt, name), c.options)
	c.nodes = append(c.nodes, k)
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

// ready returns once all apiservers are.
func (c *kubeadm) ready() {
	c.t.Helper()
	for _, k := range c.nodes {
		k.server.WaitFor("/readyz")
	}
}

// run runs the commands of the page in which something stands, with more flags behind, and
// gives what they say and their exit code.
func (c *kubeadm) run(has string, more ...string) (string, int) {
	c.t.Helper()
	script := strings.TrimSpace(c.page.block(c.t, "sh", has)) + " " + strings.Join(more, " ")
	script = strings.Replace(script, etcdOfKubeadm, "", 1)
	script = strings.ReplaceAll(script, "/mnt/", c.mnt+"/")
	script = strings.ReplaceAll(script, "unix:///run/kmsplugin", "unix://"+c.mnt+"/{apiserver}/run/kmsplugin")
	ctx, cancel := context.WithTimeout(c.t.Context(), 4*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", script)
	command.Dir = c.work
	command.Env = append(os.Environ(), "PATH="+c.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+c.kubeconfig(), "ETCDCTL_ENDPOINTS="+c.options.Endpoint())
	text, _ := command.CombinedOutput()
	return string(text), command.ProcessState.ExitCode()
}

func (c *kubeadm) kubeconfig() string {
	all := clientcmdapi.NewConfig()
	for _, k := range c.nodes {
		all.Clusters[k.name] = &clientcmdapi.Cluster{Server: k.server.Config.Host, CertificateAuthorityData: k.server.Config.CAData}
		all.AuthInfos[k.name] = &clientcmdapi.AuthInfo{Token: k.server.Config.BearerToken}
		all.Contexts[k.name] = &clientcmdapi.Context{Cluster: k.name, AuthInfo: k.name}
	}
	all.CurrentContext = c.nodes[0].name
	path := filepath.Join(c.work, "kubeconfig")
	require.NoError(c.t, clientcmd.WriteToFile(*all, path))
	return path
}

// plugin gives a node the key and the manifest of the page.
func (c *kubeadm) plugin(k *kubelet, keys string) {
	c.t.Helper()
	require.NoError(c.t, os.MkdirAll(k.on("/etc/kubernetes/kms"), 0o700))
	content, err := os.ReadFile(keys)
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(k.on("/etc/kubernetes/kms/kek.json"), content, 0o600))
	require.NoError(c.t, os.WriteFile(filepath.Join(k.manifests(), "kms-one.yaml"), []byte(c.page.block(c.t, "yaml", "kms-one")), 0o600))
}

// reads requires that a Secret is read through every apiserver.
func (c *kubeadm) reads() {
	c.t.Helper()
	for _, k := range c.nodes {
		got, err := k.server.Kube.CoreV1().Secrets("default").Get(c.t.Context(), "one", metav1.GetOptions{})
		require.NoError(c.t, err, k.name)
		require.Equal(c.t, "sesame", string(got.Data["password"]))
	}
}

func TestTheRecipeForKubeadm(t *testing.T) {
	c := newKubeadm(t)
	_, err := c.nodes[0].server.Kube.CoreV1().Secrets("default").Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string][]byte{"password": []byte("sesame")}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, k := range c.nodes {
		require.NoError(t, os.MkdirAll(k.on("/etc/kubernetes/encryption"), 0o700))
	}
	text, code := c.run("atrest enable")
	require.Zero(t, code, text)
	c.flags()
	text, _ = c.run("atrest status")
	require.NotContains(t, text, "PROBLEMS", text)

	keys := keyfile.At(filepath.Join(t.TempDir(), "kek.json"))
	_, err = keys.Create(t.Context())
	require.NoError(t, err)
	for _, k := range c.nodes {
		c.plugin(k, keys.Path())
		k.sync()
	}
	before := c.pids()
	text, code = c.run("atrest rotate", "--hold 2s --interval 200ms --timeout 3m")
	require.Zero(t, code, text)
	require.Contains(t, text, "finished: ")
	require.Equal(t, before, c.pids(), "no kube-apiserver was restarted for it")
	c.reads()

	// All nodes off and on, the plugins last.
	for _, k := range c.nodes {
		k.off()
	}
	c.etcd.Kill()
	c.etcd.Restart()
	for _, k := range c.nodes {
		k.sync("kms-one.yaml")
	}
	c.ready()
	c.reads()

	c.joins(keys.Path())
}

// joins has a node join: without the files first, which it does not start without.
func (c *kubeadm) joins(keys string) {
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

	require.NoError(c.t, os.MkdirAll(k.on("/etc/kubernetes/encryption"), 0o700))
	config, err := os.ReadFile(c.nodes[0].on("/etc/kubernetes/encryption/config.yaml"))
	require.NoError(c.t, err)
	config = []byte(strings.ReplaceAll(string(config), "/cp-1/", "/cp-4/"))
	require.NoError(c.t, os.WriteFile(k.on("/etc/kubernetes/encryption/config.yaml"), config, 0o600))
	c.plugin(k, keys)
	k.sync("kms-one.yaml")
	k.server.WaitFor("/readyz")
	c.reads()
	text, code := c.run("atrest status", "--separate-configs") // the folders that stand in for the nodes have paths of their own
	require.Equal(c.t, 2, code, "the new one is not named: %s", text)
	require.Contains(c.t, text, "cp-4")
}

// pids are those of the kube-apiservers.
func (c *kubeadm) pids() (all []int) {
	for _, k := range c.nodes {
		all = append(all, k.server.Pid())
	}
	return all
}
