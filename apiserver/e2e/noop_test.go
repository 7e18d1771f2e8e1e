package e2e

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// A rotation is finished by updates that change nothing. A server restarts meanwhile, and
// its plugin decrypts but is not well: then such an update must fail. It never says that
// all is well and leaves the object under the former key.
func TestAnUpdateThatChangesNothingNeverPretendsToHaveRewritten(t *testing.T) {
	t.Parallel()
	etcd, plugin := harness.Etcd(t), faultplugin.Start(t)
	config := harness.NewConfigFile(t, harness.Entry("secrets", kmsAt("one", plugin.Endpoint()), harness.Identity))
	spec := harness.Spec{Program: kubeAPIServer, Etcd: etcd, Flags: config.Flags()}
	first := harness.Start(t, spec)
	writeSecret(t, first, "old", password)
	first.Kill()
	keyID := func() string { return sealedAt(t, etcd, secretKey("old"), "one", password).Source.KeyID }
	require.Equal(t, "1", keyID())

	for _, c := range []struct {
		next  string // key_id
		spoil func(*faultplugin.Behaviour)
	}{
		{"2", func(b *faultplugin.Behaviour) { b.Healthz = "the KMS is slow today" }},
		{"3", func(b *faultplugin.Behaviour) { b.StatusErr = status.Error(codes.Internal, "the KMS is slow today") }},
	} {
		plugin.Set(func(b *faultplugin.Behaviour) { b.KeyID = c.next; c.spoil(b) })
		server := harness.Launch(t, spec)
		server.WaitFor("/readyz?exclude=kms-providers")
		require.Equal(t, password, readSecret(t, server, "old"))
		before := rawAt(t, etcd, secretKey("old"))
		require.Error(t, changeNothing(t, server, "old"))
		require.Equal(t, before, rawAt(t, etcd, secretKey("old")))

		plugin.Heal(c.next)
		waitForStatus(t, server, http.StatusOK, check)
		require.NoError(t, changeNothing(t, server, "old"))
		require.Equal(t, c.next, keyID())
		server.Kill()
	}
}

// changeNothing is what a storage migration does to an object.
func changeNothing(t *testing.T, s *harness.Server, name string) error {
	t.Helper()
	secrets := s.Kube.CoreV1().Secrets(namespace)
	now, err := secrets.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	patch := `{"metadata":{"resourceVersion":"` + now.ResourceVersion + `"}}`
	_, err = secrets.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
