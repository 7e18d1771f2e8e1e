package atrest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/apis/example/install"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// storageOf is kube-apiserver's own storage of a resource that e encrypts.
func storageOf(t *testing.T, e *atrest.Encryption, etcd *etcdtest.Server) storage.Interface {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	config := storagebackend.NewDefaultConfig("/registry", serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion))
	config.Transport.ServerList = []string{etcd.Endpoint()}
	config.CompactionInterval, config.DBMetricPollInterval = 0, 0
	pods := schema.GroupResource{Resource: "pods"}
	inner := generic.RESTOptions{StorageConfig: config.ForResource(pods), Decorator: generic.UndecoratedStorage, ResourcePrefix: "pods"}

	options, err := e.RESTOptions(inner).GetRESTOptions(pods, nil)
	require.NoError(t, err)
	s, destroy, err := options.Decorator(options.StorageConfig, "/pods", nil,
		func() runtime.Object { return &example.Pod{} }, func() runtime.Object { return &example.PodList{} }, nil, nil, nil)
	require.NoError(t, err)
	t.Cleanup(destroy)
	return s
}

func TestAnOutageIsToldFromADamagedValue(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.AllowUnsafeMalformedObjectDeletion, true)
	p, etcd := faultplugin.Start(t), etcdtest.Start(t)
	path, _ := place(t, configuration(p, "pods"))
	before := storageOf(t, start(t, optionsFor(path)), etcd)
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"}}
	require.NoError(t, before.Create(t.Context(), "/pods/default/x", pod, nil, 0))

	p.Kill()
	after := storageOf(t, start(t, optionsFor(path)), etcd) // it has no keys in memory
	get := func() error { return after.Get(t.Context(), "/pods/default/x", storage.GetOptions{}, &example.Pod{}) }
	require.True(t, apierrors.IsServiceUnavailable(get()), "%v", get())
	require.False(t, storage.IsCorruptObject(get()))
	err := after.Create(t.Context(), "/pods/default/y", pod.DeepCopy(), nil, 0)
	require.True(t, apierrors.IsServiceUnavailable(err), "%v", err)

	p.Serve()
	require.Eventually(t, func() bool { return get() == nil }, 30*time.Second, time.Millisecond)
	value, _ := etcd.Value("/registry/pods/default/x")
	value[len(value)-1] ^= 1
	etcd.Store("/registry/pods/default/x", value)
	require.True(t, storage.IsCorruptObject(get()), "%v", get())
}
