package outage

import (
	"cmp"
	"context"
	"path"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/apis/example/install"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/kube-atrest/atrest/internal/etcdtest"
)

// rig is a resource in kube-apiserver's own storage, on an etcd.
type rig struct {
	*registry.Store
	t    *testing.T
	etcd *etcdtest.Server
	// fails, if it is set, is the error of whatever is read or written now, and
	// failsAt that of one object.
	fails   error
	failsAt map[string]error
}

var pods = schema.GroupResource{Group: "example.apiserver.k8s.io", Resource: "pods"}

// deletable turns on that what cannot be read can be deleted as corrupt.
func deletable(t *testing.T, on bool) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AllowUnsafeMalformedObjectDeletion, on)
}

// newRig wraps the storage options with wrap.
func newRig(t *testing.T, wrap func(generic.RESTOptionsGetter) generic.RESTOptionsGetter) *rig {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
	r := &rig{t: t, etcd: etcdtest.Start(t)}
	config := storagebackend.NewDefaultConfig("/registry", codec)
	config.Transport.ServerList = []string{r.etcd.Endpoint()}
	config.CompactionInterval, config.DBMetricPollInterval = 0, 0
	config.Transformer = r
	options := generic.RESTOptions{
		StorageConfig:  config.ForResource(pods),
		Decorator:      generic.UndecoratedStorage,
		ResourcePrefix: "pods",
	}
	strategy := strategy{scheme, names.SimpleNameGenerator}
	r.Store = &registry.Store{
		NewFunc:                  func() runtime.Object { return &example.Pod{} },
		NewListFunc:              func() runtime.Object { return &example.PodList{} },
		DefaultQualifiedResource: pods, SingularQualifiedResource: schema.GroupResource{Group: pods.Group, Resource: "pod"},
		CreateStrategy: strategy, DeleteStrategy: strategy,
		TableConvertor: rest.NewDefaultTableConvertor(pods),
	}
	attributes := func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil }
	require.NoError(t, r.CompleteWithOptions(&generic.StoreOptions{RESTOptions: wrap(options), AttrFunc: attributes}))
	t.Cleanup(r.DestroyFunc)
	return r
}

// TransformFromStorage reads as it was written.
func (r *rig) TransformFromStorage(_ context.Context, data []byte, at value.Context) ([]byte, bool, error) {
	return data, false, cmp.Or(r.fails, r.failsAt[path.Base(string(at.AuthenticatedData()))])
}

// TransformToStorage writes plaintext.
func (r *rig) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return data, r.fails
}

func (r *rig) ctx() context.Context {
	return genericapirequest.WithNamespace(r.t.Context(), "default")
}

func pod(name string) *example.Pod {
	return &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
}

// stored makes a healthy object.
func (r *rig) stored(name string) {
	r.t.Helper()
	_, err := r.Create(r.ctx(), pod(name), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	require.NoError(r.t, err)
}

// calls are the ways to an object.
func (r *rig) calls(name string) map[string]func() error {
	update := func(old runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		old.(*example.Pod).Labels = map[string]string{"changed": "yes"}
		return old, nil, nil
	}
	return map[string]func() error{
		"get": func() error { _, err := r.Get(r.ctx(), name, &metav1.GetOptions{}); return err },
		"list": func() error {
			_, err := r.ListPredicate(r.ctx(), storage.Everything, nil)
			return err
		},
		"create": func() error {
			_, err := r.Create(r.ctx(), pod("new"), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			return err
		},
		"update": func() error {
			err := r.Storage.Storage.GuaranteedUpdate(r.ctx(), "/pods/default/"+name, &example.Pod{}, false, nil, update, nil)
			return storeerr.InterpretUpdateError(err, pods, name)
		},
		"delete": func() error {
			_, _, err := r.Delete(r.ctx(), name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
			return err
		},
		"delete again, after a conflict": func() error {
			err := r.Storage.Storage.Delete(r.ctx(), "/pods/default/"+name, &example.Pod{}, nil, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
			return storeerr.InterpretDeleteError(err, pods, name)
		},
	}
}

// deleteUnread deletes as corrupt.
func (r *rig) deleteUnread(name string) error {
	yes := true
	options := &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: &yes}
	_, _, err := r.GetCorruptObjDeleter().Delete(r.ctx(), name, rest.ValidateAllObjectFunc, options)
	return err
}

// has reports whether etcd has the object.
func (r *rig) has(name string) bool {
	_, ok := r.etcd.Value("/registry/pods/default/" + name)
	return ok
}

// strategy is that of a resource that anything may be done with.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
}

func (strategy) NamespaceScoped() bool                                     { return true }
func (strategy) PrepareForCreate(context.Context, runtime.Object)          {}
func (strategy) Validate(context.Context, runtime.Object) field.ErrorList  { return nil }
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (strategy) Canonicalize(runtime.Object)                               {}
