package clusters

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	wardle "k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	"k8s.io/sample-apiserver/pkg/generated/clientset/versioned"
	wardleclient "k8s.io/sample-apiserver/pkg/generated/clientset/versioned/typed/wardle/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// aggregated is a cluster with two aggregated apiservers in the etcd of the kube-apiserver,
// which has a plugin in common with them. They are k8s.io/sample-apiserver with the change
// of the page.
type aggregated struct {
	*cluster
	main    *harness.Server
	source  string // of the sample, as it was changed
	program string // built of that
	tls     string // folder with their certificate
	own     string // kubeconfig of their service account
}

func newAggregated(t *testing.T) *aggregated {
	t.Helper()
	c := &aggregated{cluster: newCluster(t, "aggregated.md"), tls: t.TempDir(), own: filepath.Join(t.TempDir(), "kubeconfig")}
	c.machines("wardle-1", "wardle-2")
	shared := fmt.Sprintf("kms: {apiVersion: v2, name: main, endpoint: %q}", "unix://"+c.nodes[0].on("/run/kmsplugin/one.sock"))
	file := harness.NewConfigFile(t, harness.Entry("secrets", shared, harness.Identity))
	c.main = harness.Launch(t, harness.Spec{Program: harness.HurriedServer, Host: "cp-1", Etcd: c.options, Flags: append(frontProxy(t), file.Flags()...)})
	c.build()
	c.main.WaitFor("/readyz")
	for _, name := range []string{"ns.yaml", "sa.yaml", "rbac.yaml", "rbac-bind.yaml", "auth-delegator.yaml", "auth-reader.yaml"} {
		c.apply(c.read(filepath.Join(c.source, "artifacts", "example", name)))
	}
	c.apply(c.page.block(t, "yaml", "mutatingadmissionpolicies"))
	own := clientcmdapi.NewConfig()
	own.Clusters["main"] = &clientcmdapi.Cluster{Server: c.main.Config.Host, CertificateAuthorityData: c.main.Config.CAData}
	own.AuthInfos["main"] = &clientcmdapi.AuthInfo{Token: c.token("wardle", "apiserver")}
	own.Contexts["main"] = &clientcmdapi.Context{Cluster: "main", AuthInfo: "main"}
	own.CurrentContext = "main"
	require.NoError(t, clientcmd.WriteToFile(*own, c.own))

	cert, key, err := certutil.GenerateSelfSignedCertKey("api.wardle.svc", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	require.NoError(t, err)
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		require.NoError(t, os.WriteFile(filepath.Join(c.tls, name), content, 0o600))
	}
	text, code := c.run("atrest enable")
	require.Zero(t, code, text)
	token := c.operator()
	for _, k := range c.nodes {
		c.serve(k, token)
	}
	c.ready()
	c.register(cert)
	c.nodes = append(c.nodes, &kubelet{t: t, name: "cp-1", server: c.main})
	return c
}

// machines makes the nodes, with a plugin of each name.
func (c *aggregated) machines(names ...string) {
	t := c.t
	t.Helper()
	for _, name := range names {
		k := c.node(name, "/etc/kubernetes/manifests")
		require.NoError(t, os.MkdirAll(k.on("/etc/wardle/encryption"), 0o700))
		require.NoError(t, os.MkdirAll(k.on("/run/kmsplugin"), 0o700))
	}
	for _, plugin := range []string{"one", "two", "three"} {
		keys := c.newKeys()
		for _, k := range c.nodes {
			harness.Run(t, harness.KeyFilePlugin, keys.Path(), "unix://"+k.on("/run/kmsplugin/"+plugin+".sock"))
		}
	}
}

// build makes the program: the source of the module, with the change of the page.
func (c *aggregated) build() {
	t := c.t
	t.Helper()
	space := filepath.Join(t.TempDir(), "go.work")
	run := func(dir, name string, args ...string) string {
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir = dir
		if dir != "" {
			command.Env = append(os.Environ(), "GOWORK="+space)
		}
		text, err := command.CombinedOutput()
		require.NoError(t, err, string(text))
		return strings.TrimSpace(string(text))
	}
	c.source = t.TempDir()
	require.NoError(t, os.CopyFS(c.source, os.DirFS(run("", "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/sample-apiserver"))))
	change := filepath.Join(c.work, "change.diff")
	require.NoError(t, os.WriteFile(change, []byte(c.page.block(t, "diff", "atrest.NewOptions()")), 0o600))
	run(c.source, "git", "apply", change)

	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(space, fmt.Appendf(nil, "go 1.26.0\nuse (\n%q\n%q\n%q\n)\n", root, filepath.Join(root, "apiserver"), c.source), 0o600))
	require.NoError(t, os.WriteFile(space+".sum", []byte(c.read(filepath.Join(root, "go.work.sum"))), 0o600))
	c.program = filepath.Join(c.bin, "wardle-server")
	run(c.source, "go", "build", "-o", c.program, ".")
}

func (c *aggregated) read(file string) string {
	c.t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(c.t, err)
	return string(text)
}

var plurals = map[string]string{"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Role": "roles", "RoleBinding": "rolebindings",
	"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "Service": "services", "APIService": "apiservices"}

// apply creates what is in a file of YAML.
func (c *aggregated) apply(text string) {
	c.t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		var object unstructured.Unstructured
		require.NoError(c.t, yaml.Unmarshal([]byte(document), &object.Object))
		version := object.GroupVersionKind().GroupVersion()
		require.NotEmpty(c.t, plurals[object.GetKind()], document)
		_, err := c.main.Dynamic.Resource(version.WithResource(plurals[object.GetKind()])).Namespace(object.GetNamespace()).
			Create(c.t.Context(), &object, metav1.CreateOptions{})
		require.NoError(c.t, err, document)
	}
}

// operator has the rights of the page, and no more, and gives the token of one who has them.
func (c *aggregated) operator() string {
	t := c.t
	t.Helper()
	c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: operators}")
	c.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: atrest, namespace: operators}")
	rewrite := c.page.block(t, "yaml", "name: atrest:rewrite")
	for document := range strings.SplitSeq(c.read(filepath.Join("..", "..", "docs", "rbac.yaml")), "\n---\n") {
		if strings.Contains(document, "kind: ClusterRole\nmetadata:\n  name: atrest:rewrite\n") {
			document, rewrite = rewrite, ""
		}
		c.apply(strings.Replace(document, "name: atrest-operators", "name: system:serviceaccounts:operators", 1))
	}
	require.Empty(t, rewrite, "it is in the place of the one in rbac.yaml")
	return c.token("operators", "atrest")
}

func (c *aggregated) token(namespace, account string) string {
	c.t.Helper()
	got, err := c.main.Kube.CoreV1().ServiceAccounts(namespace).CreateToken(c.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return got.Status.Token
}

// serve starts the server of a node, with the flags about encryption that the page has.
func (c *aggregated) serve(k *kubelet, token string) {
	t := c.t
	t.Helper()
	var set appsv1.DaemonSet
	require.NoError(t, yaml.UnmarshalStrict([]byte(c.page.block(t, "yaml", "kind: DaemonSet")), &set))
	args, err := k.args(corev1.Pod{Spec: set.Spec.Template.Spec})
	require.NoError(t, err)
	address := harness.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	cert := filepath.Join(c.tls, "tls.crt")
	flags := []string{"--etcd-servers=" + c.options.Endpoint(), "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--tls-cert-file=" + cert, "--tls-private-key-file=" + filepath.Join(c.tls, "tls.key"),
		"--kubeconfig=" + c.own, "--authentication-kubeconfig=" + c.own, "--authorization-kubeconfig=" + c.own}
	for _, arg := range args {
		if strings.HasPrefix(arg, "--encryption-") || strings.HasPrefix(arg, "--etcd-prefix") {
			flags = append(flags, arg)
		}
	}
	k.server = harness.LaunchFile(t, c.program, &rest.Config{
		Host: "https://" + address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: cert, CAData: []byte(c.read(cert))}, QPS: -1,
	}, flags)
}

// register has the kube-apiserver lead to the first of them. The Service has another way to
// it than by endpoints, which may not be on the loopback address.
func (c *aggregated) register(cert []byte) {
	t := c.t
	t.Helper()
	c.apply("apiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: wardle}\nspec: {type: ExternalName, externalName: localhost}")
	var service unstructured.Unstructured
	require.NoError(t, yaml.Unmarshal([]byte(c.page.block(t, "yaml", "kind: APIService")), &service.Object))
	_, port, err := net.SplitHostPort(strings.TrimPrefix(c.nodes[0].server.Config.Host, "https://"))
	require.NoError(t, err)
	number, err := strconv.ParseInt(port, 10, 64)
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedField(service.Object, number, "spec", "service", "port"))
	spec := service.Object["spec"].(map[string]any)
	require.Equal(t, "BASE64", spec["caBundle"])
	spec["caBundle"] = cert
	text, err := yaml.Marshal(service.Object)
	require.NoError(t, err)
	c.apply(string(text))
	require.Eventually(t, func() bool {
		_, err := flunders(t, c.main.Config).List(t.Context(), metav1.ListOptions{})
		return err == nil
	}, time.Minute, 100*time.Millisecond)
}

func flunders(t *testing.T, config *rest.Config) wardleclient.FlunderInterface {
	t.Helper()
	client, err := versioned.NewForConfig(config)
	require.NoError(t, err)
	return client.WardleV1alpha1().Flunders("default")
}

// flunderLoad is flunders being written and read.
type flunderLoad struct {
	t       *testing.T
	clients []wardleclient.FlunderInterface // through the kube-apiserver, and of each server
	stop    chan struct{}
	ended   sync.WaitGroup
	written map[string]string

	mu     sync.Mutex
	failed []string
	count  int
}

// still is how many are never written again.
const still, busy = 30, 3

// startLoad begins with requests. It ends with the test at the latest.
func (c *aggregated) startLoad() *flunderLoad {
	t := c.t
	t.Helper()
	admin := rest.CopyConfig(c.main.Config)
	l := &flunderLoad{t: t, stop: make(chan struct{}), written: map[string]string{}, clients: []wardleclient.FlunderInterface{flunders(t, admin)}}
	for _, k := range c.nodes[:2] {
		direct := rest.CopyConfig(k.server.Config)
		direct.BearerToken = admin.BearerToken
		l.clients = append(l.clients, flunders(t, direct))
	}
	for i := range still + busy {
		name := fmt.Sprintf("flunder-%d", i)
		l.written[name] = "sesame-0"
		_, err := l.clients[i%len(l.clients)].Create(t.Context(), &wardle.Flunder{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: wardle.FlunderSpec{Reference: "sesame-0"}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for i := range busy {
		l.ended.Go(func() { l.loop(i) })
	}
	t.Cleanup(l.halt)
	return l
}

// loop writes one of them through each client in turn, and reads it through the next.
func (l *flunderLoad) loop(i int) {
	name := fmt.Sprintf("flunder-%d", i)
	for n := 1; ; n++ {
		value := fmt.Sprintf("sesame-%d", n)
		_, err := l.clients[n%len(l.clients)].Patch(l.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"reference":%q}}`, value), metav1.PatchOptions{})
		l.note("write", name, value, err)
		got, err := l.clients[(n+1)%len(l.clients)].Get(l.t.Context(), name, metav1.GetOptions{})
		if err == nil && got.Spec.Reference != value {
			err = fmt.Errorf("it has %s", got.Spec.Reference)
		}
		l.note("read", name, value, err)
		select {
		case <-l.stop:
			return
		case <-time.After(30 * time.Millisecond):
		}
	}
}

func (l *flunderLoad) note(what, name, value string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	if err != nil {
		l.failed = append(l.failed, fmt.Sprintf("%s %s=%s: %v", what, name, value, err))
	} else {
		l.written[name] = value
	}
}

func (l *flunderLoad) halt() {
	l.mu.Lock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	l.ended.Wait()
}

// end ends the requests, none of which may have failed, and reads all once more.
func (l *flunderLoad) end() {
	l.t.Helper()
	l.halt()
	require.Empty(l.t, l.failed)
	l.t.Logf("%d requests, none failed", l.count)
	for _, client := range l.clients {
		all, err := client.List(l.t.Context(), metav1.ListOptions{})
		require.NoError(l.t, err)
		read := map[string]string{}
		for _, f := range all.Items {
			read[f.Name] = f.Spec.Reference
		}
		require.Equal(l.t, l.written, read)
	}
}
