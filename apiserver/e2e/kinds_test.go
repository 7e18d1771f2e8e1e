package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
)

// kind is a resource of which a test makes objects. What they hide is an annotation, so
// that all kinds are written, read and updated alike.
type kind struct {
	resource schema.GroupVersionResource
	name     string
	folder   string         // in etcd
	fields   map[string]any // what an object has beside its metadata
}

func coreKind(resource, name string) kind {
	return kind{
		resource: schema.GroupVersionResource{Version: "v1", Resource: resource},
		name:     name,
		folder:   "/registry/" + resource + "/" + namespace + "/",
	}
}

// object is one object, and what it hides.
type object struct {
	kind
	name   string
	hidden string
}

const (
	hiddenIn  = "e2e/password"
	touchedIn = "e2e/touched"
)

func (o object) etcdKey() string { return o.folder + o.name }

func (o object) in(s *harness.Server) dynamic.ResourceInterface {
	return s.Dynamic.Resource(o.resource).Namespace(namespace)
}

// create makes the object through s.
func (o object) create(t *testing.T, s *harness.Server) {
	t.Helper()
	made := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range o.fields {
		made.Object[field] = value
	}
	made.SetGroupVersionKind(o.resource.GroupVersion().WithKind(o.kind.name))
	made.SetName(o.name)
	made.SetAnnotations(map[string]string{hiddenIn: o.hidden})
	_, err := o.in(s).Create(t.Context(), made, metav1.CreateOptions{})
	require.NoError(t, err)
}

// touch updates the object through s and returns its new version.
func (o object) touch(t *testing.T, s *harness.Server, mark string) (version string) {
	t.Helper()
	now := o.get(t, s)
	annotations := now.GetAnnotations()
	annotations[touchedIn] = mark
	now.SetAnnotations(annotations)
	updated, err := o.in(s).Update(t.Context(), now, metav1.UpdateOptions{})
	require.NoError(t, err, "%s %s", o.kind.name, o.name)
	return updated.GetResourceVersion()
}

// update updates the object through s without a change and reports whether s wrote it all
// the same.
func (o object) update(t *testing.T, s *harness.Server) (written bool) {
	t.Helper()
	now := o.get(t, s)
	updated, err := o.in(s).Update(t.Context(), now, metav1.UpdateOptions{})
	require.NoError(t, err, "%s %s", o.kind.name, o.name)
	o.requireHidden(t, updated)
	return updated.GetResourceVersion() != now.GetResourceVersion()
}

// get reads the object from etcd through s.
func (o object) get(t *testing.T, s *harness.Server) *unstructured.Unstructured {
	t.Helper()
	got, err := o.in(s).Get(t.Context(), o.name, metav1.GetOptions{})
	require.NoError(t, err, "%s %s", o.kind.name, o.name)
	o.requireHidden(t, got)
	return got
}

// cached reads the object from the watch cache of s, once that has come to version: s has
// then decrypted what its watch of etcd told it.
func (o object) cached(t *testing.T, s *harness.Server, version string) *unstructured.Unstructured {
	t.Helper()
	list, err := o.in(s).List(t.Context(), metav1.ListOptions{
		FieldSelector:        "metadata.name=" + o.name,
		ResourceVersion:      version,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	require.NoError(t, err, "%s %s", o.kind.name, o.name)
	require.Len(t, list.Items, 1)
	o.requireHidden(t, &list.Items[0])
	return &list.Items[0]
}

func (o object) requireHidden(t *testing.T, got *unstructured.Unstructured) {
	t.Helper()
	require.Equal(t, o.hidden, got.GetAnnotations()[hiddenIn], "%s %s", o.kind.name, o.name)
}
