package operator

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/migrate"
)

var (
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configmaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	crds       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

// real is a kube-apiserver, with what it stores and reads.
type real struct {
	*harness.Server
	t       *testing.T
	program string
	cluster cluster
	file    *harness.ConfigFile
	api     *migrate.Cluster
}

func newReal(t *testing.T, program string, flags ...string) *real {
	t.Helper()
	r := &real{t: t, program: program, cluster: start(t)}
	r.file = harness.NewConfigFile(t, r.entry(harness.Identity, r.kms()))
	r.Server = harness.Start(t, harness.Spec{Program: program, Etcd: r.cluster, Flags: append(r.file.Flags(), flags...)})
	var err error
	r.api, err = migrate.NewCluster(r.Config, clock.RealClock{})
	require.NoError(t, err)
	return r
}

func (r *real) kms() string { return harness.Plugin{Plugin: r.cluster.plugin}.KMS("keyfile") }

func (r *real) entry(providers ...string) string {
	return harness.Entry("secrets, configmaps, widgets.example.com", providers...)
}

// use has the server take another configuration into use. Kubernetes' own looks
// at the file once a minute, so it is started again.
func (r *real) use(entries ...string) {
	r.t.Helper()
	if r.program == harness.StockServer {
		r.Stop()
		r.file.Write(entries...)
		r.Restart()
		r.WaitFor("/readyz")
		return
	}
	r.file.Write(entries...)
	content, err := os.ReadFile(r.file.Path)
	require.NoError(r.t, err)
	require.Eventually(r.t, func() bool {
		_, status := r.Get(healthz.Path)
		return strings.Contains(status, hashed.Name(content))
	}, time.Minute, 50*time.Millisecond)
}

// stored is what is stored under a key, and its revision.
func (r *real) stored(key string) (value []byte, revision int64) {
	r.t.Helper()
	answer, err := r.cluster.Client().Get(r.t.Context(), key)
	require.NoError(r.t, err)
	require.Len(r.t, answer.Kvs, 1, key)
	return answer.Kvs[0].Value, answer.Kvs[0].ModRevision
}

// rewrite rewrites all objects of a resource in the namespace.
func (r *real) rewrite(resource schema.GroupVersionResource) migrate.Counts {
	r.t.Helper()
	reached, err := r.api.Rewrite(r.t.Context(), resource, migrate.Checkpoint{}, migrate.Options{})
	require.NoError(r.t, err)
	return reached.Counts
}

// create makes a Secret, a ConfigMap and a custom resource, all called stale.
func (r *real) create() {
	r.t.Helper()
	ctx, meta := r.t.Context(), metav1.ObjectMeta{Name: "stale", Labels: map[string]string{"a": "b"}}
	_, err := r.Kube.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"a": "secret"}}, metav1.CreateOptions{})
	require.NoError(r.t, err)
	_, err = r.Kube.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	require.NoError(r.t, err)
	_, err = r.Dynamic.Resource(crds).Create(ctx, definition(), metav1.CreateOptions{})
	require.NoError(r.t, err)
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "stale"}, "spec": map[string]any{"a": "b"}}}
	require.Eventually(r.t, func() bool {
		_, err := r.Dynamic.Resource(widgets).Namespace("default").Create(ctx, widget, metav1.CreateOptions{})
		return err == nil
	}, 2*time.Minute, 100*time.Millisecond)
}

func definition() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	}}
}

// peculiar are a Secret and a ConfigMap with all there may be in one that a patch could
// change: empty and missing values, what looks like a number or like JSON, bytes that are
// no text, and every kind of metadata, of several managers.
func (r *real) peculiar() (keys map[string]schema.GroupVersionResource) {
	r.t.Helper()
	ctx := r.t.Context()
	meta := metav1.ObjectMeta{Name: "peculiar", Labels: map[string]string{"b": "", "a": "1"}, Finalizers: []string{"example.com/z", "example.com/a"},
		Annotations:     map[string]string{"json": "{ \"b\": 1.0, \"a\": <&>}", "number": "01", "empty": "", "unicode": "\u2028é"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "z", UID: "2", Controller: new(bool)}, {APIVersion: "v1", Kind: "Pod", Name: "a", UID: "1"}}}
	immutable := true
	secret := &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeOpaque, Immutable: &immutable,
		Data: map[string][]byte{"z": {0, 0xff, 0xc3, 0x28}, "empty": {}, "nil": nil, "json": []byte(`{"b": 1e2, "a": null}`), "a": bytes.Repeat([]byte("x"), 100_000)}}
	_, err := r.Kube.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{FieldManager: "one"})
	require.NoError(r.t, err)
	configmap := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"z": "", "yaml": "a: 1\r\n\tb: 2\n", "unicode": "\u2028é"}, BinaryData: map[string][]byte{"b": {0, 0xff}, "empty": {}}}
	_, err = r.Kube.CoreV1().ConfigMaps("default").Create(ctx, configmap, metav1.CreateOptions{FieldManager: "one"})
	require.NoError(r.t, err)
	applied := []byte(`{"apiVersion": "v1", "kind": "%s", "metadata": {"name": "peculiar", "labels": {"applied": "yes"}}}`)
	_, err = r.Kube.CoreV1().Secrets("default").Patch(ctx, "peculiar", types.ApplyPatchType, bytes.Replace(applied, []byte("%s"), []byte("Secret"), 1), metav1.PatchOptions{FieldManager: "two"})
	require.NoError(r.t, err)
	_, err = r.Kube.CoreV1().ConfigMaps("default").Patch(ctx, "peculiar", types.ApplyPatchType, bytes.Replace(applied, []byte("%s"), []byte("ConfigMap"), 1), metav1.PatchOptions{FieldManager: "two"})
	require.NoError(r.t, err)
	// One that is being deleted is stored again, too.
	_, err = r.Kube.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "going", Finalizers: meta.Finalizers}}, metav1.CreateOptions{})
	require.NoError(r.t, err)
	require.NoError(r.t, r.Kube.CoreV1().Secrets("default").Delete(ctx, "going", metav1.DeleteOptions{}))
	return map[string]schema.GroupVersionResource{"/registry/secrets/default/peculiar": secrets, "/registry/configmaps/default/peculiar": configmaps, "/registry/secrets/default/going": secrets}
}

// What was stored in plaintext, then encrypted, and then in plaintext again is the same
// byte for byte: an object's content, its metadata, who manages which field and since when.
func TestNoByteOfAnObjectChanges(t *testing.T) {
	t.Parallel()
	for _, program := range []string{harness.HurriedServer, harness.StockServer} {
		t.Run(program, func(t *testing.T) {
			r := newReal(t, program)
			keys := r.peculiar()
			before := map[string][]byte{}
			for key := range keys {
				before[key], _ = r.stored(key)
			}
			for _, providers := range [][]string{{r.kms(), harness.Identity}, {harness.Identity, r.kms()}} {
				r.use(r.entry(providers...))
				for _, resource := range []schema.GroupVersionResource{secrets, configmaps} {
					counts := r.rewrite(resource)
					require.Equal(t, counts.Seen, counts.Rewritten, "%s: they are stale", resource)
				}
				for key := range keys {
					value, _ := r.stored(key)
					require.Equal(t, providers[0] == harness.Identity, bytes.Equal(before[key], value), key)
				}
			}
		})
	}
}

// Package migrate lives by this: a patch with nothing but the resourceVersion has a stale
// object stored again, and leaves any other alone.
func TestAPatchWithNothingInItStoresWhatIsStale(t *testing.T) {
	t.Parallel()
	for _, program := range []string{harness.HurriedServer, harness.StockServer} {
		t.Run(program, func(t *testing.T) {
			r := newReal(t, program)
			r.create()
			keys := map[schema.GroupVersionResource]string{
				secrets: "/registry/secrets/default/stale", configmaps: "/registry/configmaps/default/stale", widgets: "/registry/example.com/widgets/default/stale",
			}
			for resource, key := range keys {
				before, revision := r.stored(key)
				counts := r.rewrite(resource)
				require.Equal(t, counts.Seen, counts.Unchanged, "%s: they are current", resource)
				_, still := r.stored(key)
				require.Equal(t, revision, still, key)
				require.False(t, bytes.HasPrefix(before, []byte("k8s:enc:")))
			}
			object := func(resource schema.GroupVersionResource) *unstructured.Unstructured {
				o, err := r.Dynamic.Resource(resource).Namespace("default").Get(t.Context(), "stale", metav1.GetOptions{})
				require.NoError(t, err)
				o.SetResourceVersion("")
				return o
			}

			before := map[schema.GroupVersionResource]*unstructured.Unstructured{}
			for resource := range keys {
				before[resource] = object(resource)
			}
			r.use(r.entry(r.kms(), harness.Identity))
			for resource, key := range keys {
				counts := r.rewrite(resource)
				require.Equal(t, counts.Seen, counts.Rewritten, "%s: they are stale", resource)
				value, revision := r.stored(key)
				require.True(t, bytes.HasPrefix(value, []byte("k8s:enc:kms:v2:keyfile:")), key)
				require.Equal(t, before[resource], object(resource), "and nothing else of it changed")

				counts = r.rewrite(resource)
				require.Equal(t, counts.Seen, counts.Unchanged, "%s: they are current again", resource)
				_, still := r.stored(key)
				require.Equal(t, revision, still, key)
			}
		})
	}
}
