package clusters

import (
	"context"
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

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// cluster is one of a page, with its nodes as folders below /mnt.
type cluster struct {
	t       *testing.T
	page    page
	work    string // where commands are run
	mnt     string
	bin     string
	etcd    *harness.Process
	options etcd.Options
	nodes   []*kubelet
	keys    *keyfile.File // of the plugins
}

func newCluster(t *testing.T, recipe string) *cluster {
	t.Helper()
	c := &cluster{t: t, page: readPage(t, recipe), work: t.TempDir(), mnt: harness.SocketDir(t), bin: t.TempDir()}
	require.NoError(t, os.Symlink(harness.Atrest(t), filepath.Join(c.bin, "atrest")))
	c.options = etcd.Options{DataDir: filepath.Join(t.TempDir(), "etcd"), SocketDir: harness.SocketDir(t)}
	c.etcd = harness.Run(t, harness.EtcdMember, c.options.DataDir, c.options.SocketDir)
	c.keys = c.newKeys()
	return c
}

func (c *cluster) newKeys() *keyfile.File {
	c.t.Helper()
	keys := keyfile.At(filepath.Join(c.t.TempDir(), "kek.json"))
	_, err := keys.Create(c.t.Context())
	require.NoError(c.t, err)
	return keys
}

// node makes one with a folder for its static pods.
func (c *cluster) node(name, manifests string) *kubelet {
	k := newKubelet(c.t, name, filepath.Join(c.mnt, name), manifests, c.options)
	c.nodes = append(c.nodes, k)
	return k
}

// ready returns once all apiservers are.
func (c *cluster) ready() {
	c.t.Helper()
	for _, k := range c.nodes {
		k.server.WaitFor("/readyz")
	}
}

// quickly are the flags of a rotation that has to last no longer than a test, while nobody
// writes, and separate is for the configurations here, which differ: the folders that stand
// in for the nodes have paths of their own, and so have their sockets.
const (
	quickly  = "--hold 500ms --interval 100ms --timeout 3m"
	separate = "--separate-configs"
)

// run runs the commands of the page in which something stands, with more flags behind, and
// gives what they say and their exit code.
func (c *cluster) run(has string, more ...string) (string, int) {
	c.t.Helper()
	return c.shell(strings.TrimSpace(c.page.block(c.t, "sh", has)) + " " + strings.Join(more, " "))
}

// runOn runs those that are for a node there, whose paths are its own.
func (c *cluster) runOn(k *kubelet, has string, more ...string) (string, int) {
	c.t.Helper()
	script := strings.TrimSpace(c.page.block(c.t, "sh", has)) + " " + strings.Join(more, " ")
	return c.shell(strings.NewReplacer(" /etc/", " "+k.on("/etc")+"/", " /var/", " "+k.on("/var")+"/").Replace(script))
}

func (c *cluster) shell(script string) (string, int) {
	c.t.Helper()
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

func (c *cluster) kubeconfig() string {
	all := clientcmdapi.NewConfig()
	for _, k := range c.nodes {
		if k.server == nil { // it has not joined yet
			continue
		}
		all.Clusters[k.name] = &clientcmdapi.Cluster{Server: k.server.Config.Host, CertificateAuthorityData: k.server.Config.CAData}
		all.AuthInfos[k.name] = &clientcmdapi.AuthInfo{Token: k.server.Config.BearerToken}
		all.Contexts[k.name] = &clientcmdapi.Context{Cluster: k.name, AuthInfo: k.name}
	}
	all.CurrentContext = c.nodes[0].name
	path := filepath.Join(c.work, "kubeconfig")
	require.NoError(c.t, clientcmd.WriteToFile(*all, path))
	return path
}

// reads requires that a Secret is read through every apiserver.
func (c *cluster) reads() {
	c.t.Helper()
	for _, k := range c.nodes {
		if k.server == nil {
			continue
		}
		got, err := k.server.Kube.CoreV1().Secrets("default").Get(c.t.Context(), "one", metav1.GetOptions{})
		require.NoError(c.t, err, k.name)
		require.Equal(c.t, "sesame", string(got.Data["password"]))
	}
}

// pids are those of the kube-apiservers.
func (c *cluster) pids() (all []int) {
	for _, k := range c.nodes {
		all = append(all, k.server.Pid())
	}
	return all
}

// create makes the Secret that reads is about.
func (c *cluster) create() {
	c.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string][]byte{"password": []byte("sesame")}}
	_, err := c.nodes[0].server.Kube.CoreV1().Secrets("default").Create(c.t.Context(), secret, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

// off ends all that runs, on all nodes at once, and starts etcd again.
func (c *cluster) off() {
	c.t.Helper()
	for _, k := range c.nodes {
		k.off()
	}
	c.etcd.Kill()
	c.etcd.Restart()
}
