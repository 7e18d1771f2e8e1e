package clusters

import (
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// etcdOfKubeadm are the flags of the page for an etcd that the tests do not have: theirs is
// a socket without TLS.
const etcdOfKubeadm = ` \
  --endpoints https://cp-1:2379 --cacert /mnt/cp-1/etc/kubernetes/pki/etcd/ca.crt \
  --cert /mnt/cp-1/etc/kubernetes/pki/apiserver-etcd-client.crt --key /mnt/cp-1/etc/kubernetes/pki/apiserver-etcd-client.key`

// ownConfiguration is that of the cluster before anything was done to it.
func ownConfiguration() (config map[string]any) {
	if err := yaml.Unmarshal([]byte(`
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
networking: {serviceSubnet: 10.32.0.0/16}
apiServer:
  extraArgs: [{name: audit-log-path, value: /var/log/audit.log}]
`), &config); err != nil {
		panic(err)
	}
	return config
}

// flags does what the page says, up to where all agree: with its commands of kubectl and
// kubeadm, of which each does what kubeadm's does, and no more.
func (c *kubeadm) flags() {
	c.t.Helper()
	for _, command := range c.page.commands("kubectl ", "kubeadm ") {
		switch command {
		case "kubectl -n kube-system get configmap kubeadm-config -o jsonpath='{.data.ClusterConfiguration}' > kubeadm.yaml":
			c.config = c.uploaded()
			c.addFlags()
		case "kubeadm init phase control-plane apiserver --config kubeadm.yaml":
			for _, k := range c.nodes {
				c.phase(k)
				k.sync()
				k.server.WaitFor("/readyz")
			}
		case "kubeadm init phase upload-config kubeadm --config kubeadm.yaml":
			c.upload()
		default:
			c.t.Fatalf("nothing stands in for %q", command)
		}
	}
}

// commands are the lines for a shell that begin so, in the order of the page.
func (p page) commands(begin ...string) (all []string) {
	for _, block := range p.blocks["sh"] {
		for line := range strings.Lines(block) {
			if slices.ContainsFunc(begin, func(b string) bool { return strings.HasPrefix(line, b) }) {
				all, p.used[block] = append(all, strings.TrimSpace(line)), true
			}
		}
	}
	return all
}

// addFlags adds to kubeadm.yaml what the page has.
func (c *kubeadm) addFlags() {
	c.t.Helper()
	var more map[string]map[string][]any
	require.NoError(c.t, yaml.Unmarshal([]byte(c.page.block(c.t, "yaml", "extraArgs")), &more))
	server := c.config["apiServer"].(map[string]any)
	for field, values := range more["apiServer"] {
		has, _ := server[field].([]any)
		server[field] = append(has, values...)
	}
}

// The ConfigMap in which kubeadm keeps the ClusterConfiguration.
const kubeadmConfig = "kubeadm-config"

// upload stores kubeadm.yaml in the cluster.
func (c *kubeadm) upload() {
	c.t.Helper()
	content, err := yaml.Marshal(c.config)
	require.NoError(c.t, err)
	maps := c.nodes[0].server.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: kubeadmConfig}, Data: map[string]string{"ClusterConfiguration": string(content)}}
	require.Eventually(c.t, func() bool { // the namespace is made by the apiserver
		_, err := maps.Create(c.t.Context(), object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			_, err = maps.Update(c.t.Context(), object, metav1.UpdateOptions{})
		}
		return err == nil
	}, time.Minute, 100*time.Millisecond)
}

// uploaded is what "kubeadm join" makes the manifests of.
func (c *kubeadm) uploaded() (config map[string]any) {
	c.t.Helper()
	object, err := c.nodes[0].server.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(c.t.Context(), kubeadmConfig, metav1.GetOptions{})
	require.NoError(c.t, err)
	require.NoError(c.t, yaml.Unmarshal([]byte(object.Data["ClusterConfiguration"]), &config))
	return config
}
