package served

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/apicase"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
)

func TestAKubeAPIServerRefusesWhatTheCasesSay(t *testing.T) {
	server := start(t)
	for _, c := range apicase.Load(t) {
		t.Run(c.Name, func(t *testing.T) {
			object := c.Object(t)
			want, _ := c.Want()
			got, unknown := create(t, server, object, metav1.FieldValidationStrict)
			require.ElementsMatch(t, c.Unknown, unknown)
			if len(c.Unknown) > 0 { // which Strict refuses by themselves, and Ignore drops
				got, _ = create(t, server, object, metav1.FieldValidationIgnore)
			}
			require.Equal(t, want, got)
		})
	}
	t.Run("kubectl explains and shows it", func(t *testing.T) { explains(t, server) })
	t.Run("nodes write beside each other", func(t *testing.T) { nodesReport(t, server) })
	t.Run("the largest object there can be is stored", func(t *testing.T) { largest(t, server) })
}

// create tries an object, its status too, and takes it away.
func create(t *testing.T, server *harness.Server, object map[string]any, validation string) (errs, unknown []string) {
	t.Helper()
	client := of(server, object)
	created, err := client.Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{FieldValidation: validation})
	if err != nil {
		return told(t, err)
	}
	defer func() { require.NoError(t, client.Delete(t.Context(), created.GetName(), metav1.DeleteOptions{})) }()
	status, ok := object["status"]
	if !ok {
		return told(t, nil)
	}
	require.NotContains(t, created.Object, "status", "it is written apart")
	created.Object["status"] = status
	_, err = client.UpdateStatus(t.Context(), created, metav1.UpdateOptions{FieldValidation: validation})
	return told(t, err)
}

// explains looks at what kubectl explain, kubectl get and short names are made of.
func explains(t *testing.T, server *harness.Server) {
	for _, description := range []string{"type is by what values are encrypted", "vaultKeyPath is MOUNT/keys/NAME of the key", "remoteKeyID is the hash of the key_id"} {
		eventually(t, func(context.Context) bool { // it is published after the definitions are served
			_, text := server.Get("/openapi/v3/apis/encryption.kube-atrest.io/v1alpha1")
			return strings.Contains(text, description)
		})
	}
	_, text := server.Get("/apis/encryption.kube-atrest.io/v1alpha1")
	for _, name := range []string{`"ear"`, `"vkc"`, `"atrest"`, `"encryptionatrests/status"`} {
		require.Contains(t, text, name)
	}
	table := func(resource string) (names []string) {
		var list metav1.Table
		err := server.Kube.CoreV1().RESTClient().Get().AbsPath("/apis/encryption.kube-atrest.io/v1alpha1/"+resource).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Into(&list)
		require.NoError(t, err)
		for _, column := range list.ColumnDefinitions {
			names = append(names, column.Name)
		}
		return names
	}
	require.Equal(t, []string{"Name", "Type", "Encrypted", "Reason", "Write-Key", "KMS", "Message", "Age"}, table("encryptionatrests"))
	require.Equal(t, []string{"Name", "Address", "Namespace", "Key", "Image", "Age"}, table("vaultkmsconfigs"))
}

const (
	hash = "sha256:abababababababababababababababababababababababababababababababab"
	now  = "2026-11-24T12:00:00Z"
)

// identity makes the object that there may be, with its defaults.
func identity(t *testing.T, server *harness.Server) {
	t.Helper()
	created, err := server.Dynamic.Resource(encryptions).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.EncryptionAtRestKind, "metadata": map[string]any{"name": v1alpha1.SingletonName},
		"spec": map[string]any{"encryption": map[string]any{"type": "identity"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	resources, _, err := unstructured.NestedStringSlice(created.Object, "spec", "resources")
	require.NoError(t, err)
	require.Equal(t, []string{"secrets", "configmaps"}, resources)
	t.Cleanup(func() {
		require.NoError(t, server.Dynamic.Resource(encryptions).Delete(context.WithoutCancel(t.Context()), v1alpha1.SingletonName, metav1.DeleteOptions{}))
	})
}

// apply is what a node does, under a field owner of its own.
func apply(t *testing.T, server *harness.Server, owner string, reports ...map[string]any) error {
	t.Helper()
	force := true
	_, err := server.Dynamic.Resource(encryptions).Patch(t.Context(), v1alpha1.SingletonName, types.ApplyPatchType, patchOf(t, map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.EncryptionAtRestKind, "metadata": map[string]any{"name": v1alpha1.SingletonName},
		"status": map[string]any{"nodes": reports},
	}), metav1.PatchOptions{FieldManager: owner, Force: &force, FieldValidation: metav1.FieldValidationStrict}, "status")
	return err
}

func report(node, key, status string) map[string]any {
	return map[string]any{"nodeName": node, "keyID": key, "status": status, "lastCheckedTime": now}
}

// nodesReport has two nodes write their entries: each has its own, and takes away none but
// its own.
func nodesReport(t *testing.T, server *harness.Server) {
	identity(t, server)
	require.NoError(t, apply(t, server, "node-a", report("a", "1", "Healthy"), report("a", "2", "Error")))
	require.NoError(t, apply(t, server, "node-b", report("b", "2", "Unhealthy")))
	require.Equal(t, []string{"a/1/Healthy", "a/2/Error", "b/2/Unhealthy"}, reports(t, server))
	require.NoError(t, apply(t, server, "node-a", report("a", "2", "Healthy")))
	require.Equal(t, []string{"a/2/Healthy", "b/2/Unhealthy"}, reports(t, server))
	require.NoError(t, apply(t, server, "node-b"))
	require.Equal(t, []string{"a/2/Healthy"}, reports(t, server))
	require.True(t, apierrors.IsInvalid(apply(t, server, "node-b", report("b", "2", "Fine"))))
	require.Equal(t, []string{"a/2/Healthy"}, reports(t, server))
}

func reports(t *testing.T, server *harness.Server) (all []string) {
	t.Helper()
	object, err := server.Dynamic.Resource(encryptions).Get(t.Context(), v1alpha1.SingletonName, metav1.GetOptions{})
	require.NoError(t, err)
	nodes, _, err := unstructured.NestedSlice(object.Object, "status", "nodes")
	require.NoError(t, err)
	for _, n := range nodes {
		n := n.(map[string]any)
		all = append(all, fmt.Sprintf("%s/%s/%s", n["nodeName"], n["keyID"], n["status"]))
	}
	return all
}

// largest has as many nodes write as much as they may, each under its own field owner, in the
// longest names there are.
func largest(t *testing.T, server *harness.Server) {
	identity(t, server)
	for i := range 100 {
		node := fmt.Sprintf("%0253d", i)
		var mine []map[string]any
		for key := range 4 {
			r := report(node, fmt.Sprintf("1%019d", key), "Error")
			r["remoteKeyID"], r["detail"], r["revision"] = hash, strings.Repeat("d", 512), 1<<53
			mine = append(mine, r)
		}
		require.NoError(t, apply(t, server, fmt.Sprintf("%0128d", i), mine...))
	}
	object, err := server.Dynamic.Resource(encryptions).Get(t.Context(), v1alpha1.SingletonName, metav1.GetOptions{})
	require.NoError(t, err)
	size := len(patchOf(t, object.Object))
	t.Logf("%d reports of 100 nodes: %d bytes", len(reports(t, server)), size)
	require.Len(t, reports(t, server), 400)
	require.Less(t, size, 1<<20, "etcd takes 1.5 MiB")
	require.True(t, apierrors.IsInvalid(apply(t, server, "one-more", report("one-more", "1", "Healthy"))), "no report more is taken")
}
