package clusters

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	wardleclient "k8s.io/sample-apiserver/pkg/generated/clientset/versioned"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// aggregated is a cluster with two aggregated apiservers on an etcd of their own, which are
// k8s.io/sample-apiserver with the change of the page.
type aggregated struct {
	*cluster
	source  string // of the sample, as it was changed
	program string // built of that
	main    *harness.Server
	etcd    *etcd.Server // of the kube-apiserver
	cert    []byte       // of the aggregated ones
	own     string       // kubeconfig of the aggregated ones' service account
}

// frontProxy writes a CA, and a certificate of it by which a kube-apiserver shows itself to
// an aggregated one, and returns the flags for them.
func frontProxy(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		return k
	}
	caKey, clientKey := key(), key()
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "front-proxy-ca"}, caKey)
	require.NoError(t, err)
	client, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "front-proxy-client"},
		NotBefore: ca.NotBefore, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, clientKey.Public(), caKey)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(client)
	require.NoError(t, err)
	text, err := keyutil.MarshalPrivateKeyToPEM(clientKey)
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	certs := func(c *x509.Certificate) []byte {
		b, err := certutil.EncodeCertificates(c)
		require.NoError(t, err)
		return b
	}
	for name, content := range map[string][]byte{"ca.crt": certs(ca), "client.crt": certs(cert), "client.key": text} {
		require.NoError(t, os.WriteFile(at(name), content, 0o600))
	}
	return []string{"--client-ca-file=" + at("ca.crt"), "--requestheader-client-ca-file=" + at("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + at("client.crt"), "--proxy-client-key-file=" + at("client.key")}
}

// build makes the program: the module's source, as this module has it, with the change of the page.
func (c *aggregated) build() {
	t := c.t
	t.Helper()
	run := func(dir string, env []string, name string, args ...string) string {
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir, command.Env = dir, append(os.Environ(), env...)
		text, err := command.CombinedOutput()
		require.NoError(t, err, string(text))
		return strings.TrimSpace(string(text))
	}
	c.source = t.TempDir()
	require.NoError(t, os.CopyFS(c.source, os.DirFS(run("", nil, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/sample-apiserver"))))
	change := filepath.Join(c.work, "change.diff")
	require.NoError(t, os.WriteFile(change, []byte(c.page.block(t, "diff", "atrest.NewOptions()")), 0o600))
	run(c.source, nil, "git", "apply", change)
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	space := filepath.Join(t.TempDir(), "go.work")
	run("", []string{"GOWORK=" + space}, "go", "work", "init", root, filepath.Join(root, "apiserver"), c.source)
	sums, err := os.ReadFile(filepath.Join(root, "go.work.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(space+".sum", sums, 0o600))
	c.program = filepath.Join(c.bin, "wardle-server")
	run(c.source, []string{"GOWORK=" + space}, "go", "build", "-o", c.program, ".")
}

// apply creates what is in a file of YAML.
func (c *aggregated) apply(text string) {
	c.t.Helper()
	kinds := map[string]string{"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Role": "roles", "RoleBinding": "rolebindings",
		"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "Service": "services", "APIService": "apiservices"}
	for _, document := range strings.Split(text, "\n---\n") {
		var object unstructured.Unstructured
		require.NoError(c.t, yaml.Unmarshal([]byte(document), &object.Object))
		kind := object.GroupVersionKind()
		require.NotEmpty(c.t, kinds[kind.Kind], kind)
		_, err := c.main.Dynamic.Resource(kind.GroupVersion().WithResource(kinds[kind.Kind])).Namespace(object.GetNamespace()).Create(c.t.Context(), &object, metav1.CreateOptions{})
		require.NoError(c.t, err)
	}
}

func (c *aggregated) artifact(name string) string {
	text, err := os.ReadFile(filepath.Join(c.source, "artifacts", "example", name))
	require.NoError(c.t, err)
	return string(text)
}

// token is one of a service account in the namespace of the sample.
func (c *aggregated) token(account string) string {
	c.t.Helper()
	got, err := c.main.Kube.CoreV1().ServiceAccounts("wardle").CreateToken(c.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return got.Status.Token
}

func newAggregated(t *testing.T) *aggregated {
	t.Helper()
	c := &aggregated{cluster: newCluster(t, "aggregated.md"), etcd: harness.Etcd(t)}
	c.main = harness.Launch(t, harness.Spec{Program: harness.HurriedServer, Host: "cp-1", Etcd: c.etcd, Flags: frontProxy(t)})
	c.build()
	c.main.WaitFor("/readyz")
	for _, name := range []string{"ns.yaml", "sa.yaml", "rbac.yaml", "rbac-bind.yaml", "auth-delegator.yaml", "auth-reader.yaml"} {
		c.apply(c.artifact(name))
	}
	c.apply(c.page.block(t, "yaml", "# from v1.36 on"))
	c.own = filepath.Join(t.TempDir(), "kubeconfig")
	one := clientcmdapi.NewConfig()
	one.Clusters["main"] = &clientcmdapi.Cluster{Server: c.main.Config.Host, CertificateAuthorityData: c.main.Config.CAData}
	one.AuthInfos["main"] = &clientcmdapi.AuthInfo{Token: c.token("apiserver")}
	one.Contexts["main"] = &clientcmdapi.Context{Cluster: "main", AuthInfo: "main"}
	one.CurrentContext = "main"
	require.NoError(t, clientcmd.WriteToFile(*one, c.own))
	return c
}

func (c *aggregated) serve(name string, token string) {
	t := c.t
	t.Helper()
	k := c.node(name, "/etc/kubernetes/manifests")
	var set appsv1.DaemonSet
	require.NoError(t, yaml.UnmarshalStrict([]byte(c.page.block(t, "yaml", "kind: DaemonSet")), &set))
	address := harness.FreeAddress(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	dir := t.TempDir()
	if c.cert == nil {
		cert, key, err := certutil.GenerateSelfSignedCertKey("api.wardle.svc", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		require.NoError(t, err)
		c.cert = cert
		require.NoError(t, os.WriteFile(filepath.Join(c.work, "tls.crt"), cert, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(c.work, "tls.key"), key, 0o600))
	}
	require.NoError(t, os.MkdirAll(k.on("/run/kmsplugin"), 0o700))
	_ = dir
	k.server = harness.LaunchFile(t, c.program, &rest.Config{Host: "https://" + address, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: c.cert}}, func() []string {
		args, err := k.args(corev1.Pod{Spec: set.Spec.Template.Spec})
		require.NoError(t, err)
		flags := []string{"--etcd-servers=" + c.options.Endpoint(), "--secure-port=" + port, "--bind-address=127.0.0.1", "--tls-cert-file=" + filepath.Join(c.work, "tls.crt"), "--tls-private-key-file=" + filepath.Join(c.work, "tls.key"),
			"--kubeconfig=" + c.own, "--authentication-kubeconfig=" + c.own, "--authorization-kubeconfig=" + c.own}
		for _, arg := range args {
			if strings.HasPrefix(arg, "--encryption-") {
				flags = append(flags, arg)
			}
		}
		return flags
	})
}

func TestTheRecipeForAnAggregatedAPIServer(t *testing.T) {
	c := newAggregated(t)
	for _, name := range []string{"wardle-1", "wardle-2"} {
		require.NoError(t, os.MkdirAll(filepath.Join(c.mnt, name, "etc/wardle/encryption"), 0o700))
	}
	text, code := c.shellX("atrest enable --resources flunders.wardle.example.com --apiservers wardle-1,wardle-2 --config '/mnt/{apiserver}/etc/wardle/encryption/config.yaml'")
	require.Zero(t, code, text)
	_, err := c.main.Kube.CoreV1().ServiceAccounts("wardle").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "operator"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	roles := []*rbacv1.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: "atrest"}, Rules: []rbacv1.PolicyRule{
		{NonResourceURLs: []string{"/debug/encryption", "/metrics", "/readyz/*"}, Verbs: []string{"get"}},
		{APIGroups: []string{"wardle.example.com"}, Resources: []string{"flunders"}, Verbs: []string{"get", "list", "patch"}}}}}
	for _, r := range roles {
		_, err := c.main.Kube.RbacV1().ClusterRoles().Create(t.Context(), r, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = c.main.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: r.ObjectMeta, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: r.Name, APIGroup: rbacv1.GroupName},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "operator", Namespace: "wardle"}}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	token := c.token("operator")
	for _, name := range []string{"wardle-1", "wardle-2"} {
		c.serve(name, token)
	}
	for _, name := range []string{"one", "two"} {
		for _, k := range c.nodes {
			harness.Run(t, harness.KeyFilePlugin, c.keys.Path(), "unix://"+k.on("/run/kmsplugin/"+name+".sock"))
		}
		c.keys = c.newKeys()
	}
	c.ready()
	// service
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(c.nodes[0].server.Config.Host, "https://"))
	c.apply("apiVersion: v1\nkind: Service\nmetadata: {name: api, namespace: wardle}\nspec: {type: ExternalName, externalName: localhost}")
	var service map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(c.artifact("apiservice.yaml")), &service))
	spec := service["spec"].(map[string]any)
	delete(spec, "insecureSkipTLSVerify")
	spec["caBundle"] = c.cert
	var p int
	require.NoError(t, yaml.Unmarshal([]byte(port), &p))
	spec["service"].(map[string]any)["port"] = p
	b, err := yaml.Marshal(service)
	require.NoError(t, err)
	c.apply(string(b))
	flunders, err := wardleclient.NewForConfig(c.main.Config)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := flunders.WardleV1alpha1().Flunders("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Log(err)
		}
		return err == nil
	}, time.Minute, 200*time.Millisecond)
	c.main.Dynamic.Resource(schema.GroupVersionResource{})
	if at := os.Getenv("AGG_EXPLORE"); at != "" {
		kc := c.kubeconfigX()
		require.NoError(t, os.WriteFile(at, []byte("export KUBECONFIG="+kc+" ETCDCTL_ENDPOINTS="+c.options.Endpoint()+" MAIN_ETCD="+c.etcd.Endpoint()+" MNT="+c.mnt+" PATH="+c.bin+":$PATH\n"), 0o600))
		<-time.After(50 * time.Minute)
	}
}

func (c *aggregated) shellX(script string) (string, int) {
	command := exec.Command("sh", "-c", strings.ReplaceAll(script, "/mnt/", c.mnt+"/"))
	command.Dir = c.work
	command.Env = append(os.Environ(), "PATH="+c.bin+":"+os.Getenv("PATH"))
	text, _ := command.CombinedOutput()
	return string(text), command.ProcessState.ExitCode()
}

func (c *aggregated) kubeconfigX() string {
	k := &kubelet{name: "kube", server: c.main}
	c.nodes = append(c.nodes, k)
	defer func() { c.nodes = c.nodes[:len(c.nodes)-1] }()
	return c.kubeconfig()
}
