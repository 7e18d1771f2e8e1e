package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// secret is a Secret of 1 KiB as a kube-apiserver serializes it.
func secret(t *testing.T, namespace, name string) []byte {
	t.Helper()
	s := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.Unix(1_800_000_000, 0)},
		Data:       map[string][]byte{"content": bytes.Repeat([]byte("x"), 1000)},
		Type:       corev1.SecretTypeOpaque,
	}
	var out bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(s, &out))
	return out.Bytes()
}

// kubeconfig is a file that leads to an apiserver.
func kubeconfig(t *testing.T, c *rest.Config) string {
	t.Helper()
	return kubeconfigs(t, "it", map[string]*rest.Config{"it": c})
}

// kubeconfigs is one that has a context for each apiserver, by its name.
func kubeconfigs(t *testing.T, current string, apiservers map[string]*rest.Config) string {
	t.Helper()
	k := clientcmdapi.NewConfig()
	for name, c := range apiservers {
		k.Clusters[name] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData, CertificateAuthority: c.CAFile}
		k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.BearerToken}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	k.CurrentContext = current
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*k, path))
	return path
}

// createNamespaces makes those in which cluster.fill stores Secrets.
func createNamespaces(t *testing.T, s *harness.Server) {
	t.Helper()
	for i := range 20 {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("namespace-%02d", i)}}
		_, err := s.Kube.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// All Secrets are under a former key_id; then none is, which the audit proves.
func TestEverySecretOfARealClusterIsRewritten(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.fill(t, *objects)
	require.NoError(t, c.plugin.Rotate(t.Context()))
	server := harness.Start(t, harness.Spec{Program: harness.KubeAPIServer, Etcd: c, Flags: []string{"--encryption-provider-config=" + c.config}})
	createNamespaces(t, server)
	atrest := command(t)
	args := func(verb string, more ...string) []string {
		return append([]string{verb, "--config", c.config, "--endpoints", c.Endpoint(), "--rate", "0"}, more...)
	}
	to := []string{"--kubeconfig", kubeconfig(t, server.Config)}

	out, _ := atrest(1, args("migrate", append(to, "--dry-run")...)...)
	require.Regexp(t, fmt.Sprintf(`secrets +%d +kms v2 "keyfile" `, *objects), out)
	state := filepath.Join(t.TempDir(), "state")
	out, told := atrest(0, args("migrate", append(to, "--state", state, "--qps", "0", "--workers", "8")...)...)
	require.Regexp(t, fmt.Sprintf(`secrets +%d +0 +0 +0 +0 `, *objects), out)
	require.Contains(t, out, "nothing is left")
	t.Log(out + told)
	out, _ = atrest(0, args("audit", "--decrypt", "--strict")...)
	require.Regexp(t, fmt.Sprintf(`secrets +%d +kms v2 +keyfile .* all`, *objects), out)
	_, err := server.Kube.CoreV1().Secrets("namespace-07").Get(t.Context(), "secret-000007", metav1.GetOptions{})
	require.NoError(t, err)
}

// With a wildcard all there is in etcd is rewritten, but for what has no API.
func TestEverythingOfARealClusterIsRewritten(t *testing.T) {
	t.Parallel()
	for _, program := range []string{harness.HurriedServer, harness.StockServer} {
		t.Run(program, func(t *testing.T) {
			r := newReal(t, program)
			r.create()
			r.use(harness.Entry("'*.*'", r.kms(), harness.Identity))
			atrest := command(t)
			out, _ := atrest(-1, "migrate", "--config", r.file.Path, "--endpoints", r.cluster.Endpoint(), "--kubeconfig", kubeconfig(t, r.Config), "--qps", "0", "-o", "json")
			var told struct {
				Rewritten []struct{ Resource string }
				Left      []struct{ Resource string }
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &told), out)
			require.Greater(t, len(told.Rewritten), 10)
			for _, left := range told.Left { // which the server writes again by itself
				require.Contains(t, []string{"apiServerIPInfo", "servicenodeportallocations", "serviceipallocations"}, left.Resource)
			}
			value, _ := r.stored("/registry/clusterroles/admin")
			require.True(t, bytes.HasPrefix(value, []byte("k8s:enc:kms:v2:keyfile:")))
		})
	}
}
