package operator

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/operate/lost"
)

// bereft are guarded apiservers, the first of which deletes what it cannot read, with
// objects under a key that is gone.
type bereft struct {
	*guarded
	records map[string]string // by etcd key
}

func startBereft(t *testing.T) *bereft {
	g := &bereft{guarded: startGuarded(t, "--feature-gates=AllowUnsafeMalformedObjectDeletion=true"), records: map[string]string{}}
	_, err := g.first.Kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	g.configure(true)
	g.write(g.first, "db", "example.com/hold")
	g.write(g.second, "web")
	_, err = g.first.Kube.CoreV1().ConfigMaps("shop").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "page"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, key := range []string{"/registry/secrets/shop/db", "/registry/secrets/shop/web", "/registry/configmaps/shop/page"} {
		g.records[key] = g.stored(key)
		require.True(t, strings.HasPrefix(g.records[key], "k8s:enc:aesgcm:v1:old:"), "%.40q", g.records[key])
	}
	g.configure(false)
	return g
}

// configure has both apiservers write with the key old, or not know it.
func (g *bereft) configure(old bool) {
	g.t.Helper()
	providers := []string{harness.Plugin{Plugin: g.plugin}.KMS("keyfile"), "aescbc: {keys: [{name: key1, secret: MDEyMzQ1Njc4OS10aGUtZmlyc3Qta2V5LTg5MDEyMzQ=}]}", harness.Identity}
	if old {
		providers = append([]string{"aesgcm: {keys: [{name: old, secret: MDEyMzQ1Njc4OS10aGUtb3RoZXIta2V5LTg5MDEyMzQ=}]}"}, providers...)
	}
	g.file.Write(harness.Entry("secrets, configmaps", providers...))
	for _, server := range []*harness.Server{g.first, g.second} {
		require.Eventually(g.t, func() bool {
			g.write(server, "probe")
			is := strings.HasPrefix(g.stored("/registry/secrets/shop/probe"), "k8s:enc:aesgcm:v1:old:")
			_, err := g.Client().Delete(g.t.Context(), "/registry/secrets/shop/probe")
			require.NoError(g.t, err)
			return is == old
		}, 2*time.Minute, 500*time.Millisecond)
	}
}

func (g *bereft) write(server *harness.Server, name string, finalizers ...string) {
	g.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}, Data: map[string][]byte{"is": []byte(name)}}
	_, err := server.Kube.CoreV1().Secrets("shop").Create(g.t.Context(), s, metav1.CreateOptions{})
	require.NoError(g.t, err)
}

func (g *bereft) stored(key string) string {
	g.t.Helper()
	found, err := g.Client().Get(g.t.Context(), key)
	require.NoError(g.t, err)
	if len(found.Kvs) == 0 {
		return ""
	}
	return string(found.Kvs[0].Value)
}

// putBack puts the records into etcd again, as they were.
func (g *bereft) putBack() {
	g.t.Helper()
	for key, value := range g.records {
		_, err := g.Client().Put(g.t.Context(), key, value)
		require.NoError(g.t, err)
	}
}

// seal has the records under the key that is gone as no apiserver has ever seen them, so that
// none has them in memory, but earlier versions of them.
func (g *bereft) seal() {
	g.t.Helper()
	block, err := aes.NewCipher([]byte("0123456789-the-other-key-8901234"))
	require.NoError(g.t, err)
	aead, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(g.t, err)
	const prefix = "k8s:enc:aesgcm:v1:old:"
	for key, value := range g.records {
		if !strings.HasPrefix(value, prefix) {
			continue
		}
		plaintext, err := aead.Open(nil, nil, []byte(strings.TrimPrefix(value, prefix)), []byte(key))
		require.NoError(g.t, err)
		g.records[key] = prefix + string(aead.Seal(nil, nil, plaintext, []byte(key)))
	}
	g.putBack()
}

// garbage puts a Secret into etcd that opens to no object, as one AES-CBC value in 256 does that
// another key of the same name has made.
func (g *bereft) garbage(name string) {
	g.t.Helper()
	block, err := aes.NewCipher([]byte("0123456789-the-first-key-8901234"))
	require.NoError(g.t, err)
	iv, sealed := make([]byte, aes.BlockSize), make([]byte, aes.BlockSize)
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(sealed, []byte("\xef\x01no padding\x04\x04\x04\x04"))
	g.records["/registry/secrets/shop/"+name] = "k8s:enc:aescbc:v1:key1:" + string(iv) + string(sealed)
}

// remove is lost --remove. The first apiserver deletes, and is asked after the other one,
// which would delete what it can read.
func (g *bereft) remove(want int, kubeconfig string, more ...string) (said, kept string) {
	g.t.Helper()
	kept = filepath.Join(g.t.TempDir(), "kept.jsonl")
	args := append([]string{"lost", "--config", g.file.Path, "--endpoints", g.Endpoint(), "--rate", "0", "--kubeconfig", kubeconfig,
		"--remove", "--keep", kept, "--apiservers", "second,first"}, more...)
	stdout, stderr := g.atrest(want, args...)
	return stdout + stderr, kept
}

func (g *bereft) admin() string {
	return kubeconfigs(g.t, "first", map[string]*rest.Config{"first": g.first.Config, "second": g.second.Config})
}

// On a kube-apiserver of Kubernetes' own, which deletes what it cannot read whatever keeps
// it from that, beside one of this project, which does not have the feature gate here.
func TestWhatIsLostIsDeleted(t *testing.T) {
	t.Parallel()
	g := startBereft(t)
	for _, server := range []*harness.Server{g.first, g.second} {
		_, err := server.Kube.CoreV1().Secrets("shop").Get(t.Context(), "db", metav1.GetOptions{})
		require.True(t, apierrors.IsInternalError(err), "%v", err)
		err = server.Kube.CoreV1().Secrets("shop").Delete(t.Context(), "db", metav1.DeleteOptions{})
		require.Error(t, err, "nor can it be deleted as others are")
	}
	g.garbage("unlucky")

	var said string
	require.Eventually(t, func() bool { // a watch that began with the key has it for a while
		g.seal()
		said, _ = g.remove(-1, g.admin(), "--confirm", "elsewhere")
		return strings.Contains(said, "left 4 objects in namespace shop: not confirmed")
	}, 5*time.Minute, time.Second)

	// A plugin that is merely away: under it is a Secret that is not lost.
	g.write(g.second, "healthy")
	require.NoError(t, g.plugin.Stop())
	said, _ = g.remove(2, g.admin(), "--confirm", "shop")
	require.Contains(t, said, "nothing was deleted: not all can be opened now")
	require.NoError(t, g.plugin.Start(t.Context()))
	for key, value := range g.records {
		require.Equal(t, value, g.stored(key))
	}
	require.Eventually(t, func() bool {
		said, _ = g.remove(-1, g.admin(), "--confirm", "elsewhere")
		return strings.Contains(said, "not confirmed")
	}, 2*time.Minute, time.Second, "both find the plugin well again")

	g.rights()

	g.putBack()
	said, kept := g.remove(0, g.user(of("lost", published(t))), "--confirm", "shop")
	require.Contains(t, said, "deleted secrets shop/db, through first")
	require.Contains(t, said, "deleted secrets shop/unlucky, through first")
	list, err := g.second.Kube.CoreV1().Secrets("shop").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	require.Equal(t, "healthy", list.Items[0].Name)
	g.comesBack(kept)
}

// What an apiserver has in memory is not lost: it is stored again from there, before anything is
// deleted. What admission keeps from that is left, also while no watch cache is ready: another
// apiserver that has the key still has written a Secret, which ends each watch.
func TestWhatIsInMemoryIsSaved(t *testing.T) {
	t.Parallel()
	g := startBereft(t)
	g.deny("web")
	g.put("/registry/secrets/shop/late", g.records["/registry/secrets/shop/web"])
	for _, server := range []*harness.Server{g.first, g.second} {
		require.Eventually(t, func() bool {
			_, err := server.Kube.CoreV1().Secrets("shop").Get(t.Context(), "web", metav1.GetOptions{ResourceVersion: "0"})
			return apierrors.IsInternalError(err)
		}, time.Minute, time.Second, "the watch cache is not ready")
	}
	said, _ := g.remove(1, g.admin(), "--confirm", "shop")
	require.Contains(t, said, "saved secrets shop/db: apiserver second had it in memory, and stored it again")
	require.Contains(t, said, "left secrets shop/web: apiserver second does not read secrets shop/web from etcd, and has it in memory, and does not store it again, as admission does not allow that")
	require.NotContains(t, said, "deleted secrets")
	for _, key := range []string{"/registry/secrets/shop/db", "/registry/configmaps/shop/page"} {
		require.True(t, strings.HasPrefix(g.stored(key), "k8s:enc:kms:v2:keyfile:"), "%.40q", g.stored(key))
	}
	for _, server := range []*harness.Server{g.first, g.second} {
		db, err := server.Kube.CoreV1().Secrets("shop").Get(t.Context(), "db", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "db", string(db.Data["is"]))
		require.Empty(t, db.Annotations)
	}
}

func (g *bereft) put(key, value string) {
	g.t.Helper()
	_, err := g.Client().Put(g.t.Context(), key, value)
	require.NoError(g.t, err)
}

// deny has no update of a Secret be admitted, by any apiserver.
func (g *bereft) deny(name string) {
	g.t.Helper()
	policies := g.first.Kube.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(g.t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "stays"},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{name, "probe"},
				RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"secrets"}}},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "it is not to be changed"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(g.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "stays"},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "stays", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	require.NoError(g.t, err)
	g.write(g.second, "probe")
	for _, server := range []*harness.Server{g.first, g.second} {
		require.Eventually(g.t, func() bool {
			_, err := server.Kube.CoreV1().Secrets("shop").Patch(g.t.Context(), "probe", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return err != nil && strings.Contains(err.Error(), "it is not to be changed")
		}, time.Minute, 200*time.Millisecond)
	}
	_, err = g.Client().Delete(g.t.Context(), "/registry/secrets/shop/probe")
	require.NoError(g.t, err)
}

// comesBack has the key be found, and puts what was kept into etcd.
func (g *bereft) comesBack(kept string) {
	content, err := os.ReadFile(kept)
	require.NoError(g.t, err)
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	require.Len(g.t, lines, 4)
	for _, line := range lines {
		var is lost.Record
		require.NoError(g.t, json.Unmarshal(line, &is))
		require.Equal(g.t, g.records[is.Key], string(is.Value))
		require.Empty(g.t, g.stored(is.Key))
		_, err := g.Client().Put(g.t.Context(), is.Key, string(is.Value))
		require.NoError(g.t, err)
	}
	g.configure(true)
	db, err := g.first.Kube.CoreV1().Secrets("shop").Get(g.t.Context(), "db", metav1.GetOptions{})
	require.NoError(g.t, err)
	require.Equal(g.t, "db", string(db.Data["is"]))
	require.Equal(g.t, []string{"example.com/hold"}, db.Finalizers)
}

// rights takes one right after the other from the user.
func (g *bereft) rights() {
	all := of("lost", published(g.t))
	for _, missing := range all {
		if missing.role == "atrest" && !strings.Contains(missing.String(), "namespaces") {
			continue // for canaries, and to list leases, which who may list everything may
		}
		var rest []right
		for _, r := range all {
			if r.String() != missing.String() {
				rest = append(rest, r)
			}
		}
		g.putBack()
		said, _ := g.remove(-1, g.user(rest), "--confirm", "shop")
		if verb := missing.rule.Verbs[0]; strings.HasPrefix(verb, "unsafe-") {
			require.Contains(g.t, said, "the user needs the verbs delete and "+verb+" for "+missing.rule.Resources[0])
			continue
		}
		require.Regexp(g.t, missing.said(), said, "without %s", missing)
	}
}
