package reencrypt

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/internal/etcdtest"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/etcd"
	"github.com/kube-atrest/atrest/operate/migrate"
)

func TestWhatNeedsItIsKnownByName(t *testing.T) {
	server := etcdtest.Start(t)
	server.Store("/registry/example.com/widgets/a/stale", []byte("{}"))
	server.Store("/registry/example.com/widgets/a/fine", []byte("k8s:enc:aesgcm:v1:k:0123456789012345678901234567"))
	server.Store("/registry/example.com/widgetsandmore/a/other", []byte("{}"))
	server.Store("/registry/example.com/widgets/of-the-cluster", []byte("{}"))
	from, err := etcd.Dial(etcd.Options{Endpoints: []string{server.Endpoint()}})
	require.NoError(t, err)
	t.Cleanup(from.Close)
	s := &Store{Walk: audit.Run, From: from, Audit: audit.Options{Layout: audit.NewLayout("", nil)}}
	needy, err := s.needy(t.Context(), schema.GroupResource{Group: "example.com", Resource: "widgets"}, func(f audit.Form) bool { return f.Kind == audit.Plaintext })
	require.NoError(t, err)
	require.Equal(t, 2, needy.len())
	for o, want := range map[migrate.Object]bool{
		{Namespace: "a", Name: "stale"}: true, {Name: "of-the-cluster"}: true,
		{Namespace: "a", Name: "fine"}: false, {Namespace: "a", Name: "other"}: false, {Namespace: "b", Name: "stale"}: false,
	} {
		require.Equal(t, want, needy.has(o), o)
	}
}

func TestResourcesAreCountedTogether(t *testing.T) {
	server := etcdtest.Start(t)
	server.Store("/registry/secrets/a/b", []byte("{}"))
	server.Store("/registry/configmaps/a/b", []byte("{ }"))
	server.Store("/registry/pods/a/b", []byte("{}"))
	from, err := etcd.Dial(etcd.Options{Endpoints: []string{server.Endpoint()}})
	require.NoError(t, err)
	t.Cleanup(from.Close)
	s := &Store{Walk: audit.Run, From: from, Audit: audit.Options{Layout: audit.NewLayout("", nil)}}
	some, err := s.Count(t.Context(), []schema.GroupResource{{Resource: "secrets"}, {Resource: "configmaps"}})
	require.NoError(t, err)
	require.Equal(t, int64(2), some.Objects)
	require.Equal(t, int64(5), some.Bytes)
	require.Equal(t, "/registry/", some.Prefix)
	require.Len(t, some.Resources, 2)
	all, err := s.Count(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, int64(3), all.Objects)
}
