package served

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/deploy/crd"
	"github.com/kube-atrest/atrest/internal/apicase"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	encryptions = v1alpha1.GroupVersion.WithResource(v1alpha1.EncryptionAtRestResource)
	vaults      = v1alpha1.GroupVersion.WithResource(v1alpha1.VaultKMSConfigResource)
)

// start runs Kubernetes' own kube-apiserver with the definitions.
func start(t *testing.T) *harness.Server {
	t.Helper()
	server := harness.Start(t, harness.Spec{Program: harness.StockServer, Etcd: harness.Etcd(t)})
	quick := rest.CopyConfig(server.Config)
	quick.QPS = -1
	client, err := dynamic.NewForConfig(quick)
	require.NoError(t, err)
	server.Dynamic = client
	files, err := crd.Files.ReadDir(".")
	require.NoError(t, err)
	for _, file := range files {
		text, err := crd.Files.ReadFile(file.Name())
		require.NoError(t, err)
		object := new(unstructured.Unstructured)
		require.NoError(t, yaml.Unmarshal(text, &object.Object))
		_, err = server.Dynamic.Resource(definitions).Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		require.NoError(t, err)
		eventually(t, func(ctx context.Context) bool { return established(ctx, t, server, object.GetName()) })
	}
	for _, resource := range []schema.GroupVersionResource{encryptions, vaults} {
		eventually(t, func(ctx context.Context) bool {
			_, err := server.Dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
			return err == nil
		})
	}
	return server
}

// established reports whether objects of a definition are served. The test fails where they
// never will be.
func established(ctx context.Context, t *testing.T, server *harness.Server, name string) bool {
	object, err := server.Dynamic.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	status, _ := object.Object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any) // null before there are any
	is := false
	for _, c := range conditions {
		c := c.(map[string]any)
		require.NotEqual(t, "NonStructuralSchema", c["type"], "%v", c)
		is = is || c["type"] == "Established" && c["status"] == "True"
	}
	return is
}

func eventually(t *testing.T, holds func(context.Context) bool) {
	t.Helper()
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) { return holds(ctx), nil }))
}

func of(server *harness.Server, object map[string]any) dynamic.ResourceInterface {
	if object["kind"] == v1alpha1.VaultKMSConfigKind {
		return server.Dynamic.Resource(vaults)
	}
	return server.Dynamic.Resource(encryptions)
}

// told are the errors of an answer, and the fields that the apiserver does not know.
func told(t *testing.T, err error) (errs, unknown []string) {
	t.Helper()
	if err == nil {
		return []string{}, nil
	}
	var status *apierrors.StatusError
	require.True(t, errors.As(err, &status), "%v", err)
	if _, list, found := strings.Cut(status.ErrStatus.Message, "strict decoding error: "); found {
		for field := range strings.SplitSeq(list, ", ") {
			name, ok := strings.CutPrefix(field, `unknown field "`)
			require.True(t, ok, field)
			unknown = append(unknown, strings.TrimSuffix(name, `"`))
		}
		return []string{}, unknown
	}
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	var fields, messages []string
	for _, cause := range status.ErrStatus.Details.Causes {
		fields, messages = append(fields, cause.Field), append(messages, cause.Message)
	}
	return apicase.ToldBy(fields, messages), nil
}

// patchOf is JSON for a patch.
func patchOf(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	return text
}
