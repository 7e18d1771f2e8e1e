package audit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
)

// member is an etcd in memory.
type member struct {
	memory
	name    string
	cluster uint64
	broken  error
}

func (m *member) String() string { return m.name }

func (m *member) Read(ctx context.Context, prefix string) (*audit.Contents, error) {
	contents, err := m.memory.Read(ctx, prefix)
	contents.Cluster = m.cluster
	return contents, errors.Join(err, m.broken)
}

func (m *member) Find(_ context.Context, key string) (audit.Entry, error) {
	if value, ok := m.memory[key]; ok {
		return audit.Entry{Key: key, Value: value, ModRevision: 3}, nil
	}
	return audit.Entry{}, audit.ErrNotFound
}

var events = schema.GroupResource{Resource: "events"}

func TestEachResourceIsCountedInEveryEtcd(t *testing.T) {
	main := &member{name: "main", cluster: 1, memory: memory{
		"/registry/pods/default/web": []byte("{}"), "/registry/secrets/default/left": []byte(sealed), "/other/secrets/x": []byte(sealed)}}
	apart := &member{name: "apart", cluster: 2, memory: memory{
		"/registry/secrets/default/a": []byte(sealed), "/registry/events/default/e": []byte("{}"), "/registry/pods/default/odd": []byte("{}"), "/other/pods/y": []byte(sealed)}}
	layout := audit.NewLayout("", nil)
	s := audit.NewSeveral(layout, main, map[schema.GroupResource]audit.Store{secrets: apart, events: apart})
	require.Equal(t, "main; for events, secrets apart", s.String())

	r := run(t, s, audit.Options{Layout: layout, Everywhere: true})
	require.EqualValues(t, 7, r.Objects)
	require.EqualValues(t, 1, r.Cluster)
	require.Equal(t, []audit.Part{{"main", 1, 7, 3, 1}, {"apart", 2, 7, 4, 2}}, r.Parts)
	of := resource(t, r, "secrets").Forms
	require.Equal(t, []string{"/other/secrets/x", "/registry/secrets/default/a"}, of[0].Keys)
	require.False(t, of[0].Astray)
	require.Equal(t, []string{"/registry/secrets/default/left in main, where no apiserver looks for it"}, of[1].Keys)
	require.True(t, of[1].Astray)
	require.Equal(t, []string{"/registry/pods/default/web"}, resource(t, r, "pods").Forms[1].Keys)
	require.Equal(t, []string{"/registry/pods/default/odd in apart, where no apiserver looks for it"}, resource(t, r, "pods").Forms[2].Keys)
	require.Equal(t, []string{"/other/pods/y"}, resource(t, r, "pods").Forms[0].Keys, "whose it is is not known")

	r = run(t, s, audit.Options{Layout: layout, Within: layout.Places(secrets)})
	require.EqualValues(t, 2, r.Objects, "in both")
}

func TestAKeyIsFoundWhereItsResourceIsHeld(t *testing.T) {
	main := &member{name: "main", memory: memory{"/registry/pods/default/a": []byte("main"), "/registry/secrets/default/a": []byte("left")}}
	apart := &member{name: "apart", memory: memory{"/registry/secrets/default/a": []byte("apart")}}
	s := audit.NewSeveral(audit.NewLayout("", nil), main, map[schema.GroupResource]audit.Store{secrets: apart})
	for key, want := range map[string]string{"/registry/secrets/default/a": "apart", "/registry/pods/default/a": "main"} {
		entry, err := s.Find(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, want, string(entry.Value))
	}
	delete(apart.memory, "/registry/secrets/default/a")
	_, err := s.Find(t.Context(), "/registry/secrets/default/a")
	require.ErrorIs(t, err, audit.ErrNotFound)
}

// Etcds of one making may have one cluster id. What is in either is counted; the same
// one, named twice, is counted twice.
func TestEtcdsOfOneClusterIDAreAllWalked(t *testing.T) {
	main := &member{name: "main", cluster: 1, memory: memory{"/registry/pods/default/a": []byte("{}")}}
	apart := &member{name: "apart", cluster: 1, memory: memory{"/registry/secrets/default/a": []byte(sealed)}}
	s := audit.NewSeveral(audit.NewLayout("", nil), main, map[schema.GroupResource]audit.Store{secrets: apart})
	r := run(t, s, audit.Options{})
	require.EqualValues(t, 2, r.Objects)
	require.Len(t, r.Parts, 2)
	require.Equal(t, []string{"/registry/secrets/default/a"}, resource(t, r, "secrets").Forms[0].Keys)
	main.memory = apart.memory
	r = run(t, s, audit.Options{})
	require.EqualValues(t, 2, r.Objects)
	require.NotContains(t, resource(t, r, "secrets").Forms[0].Keys[0], "where no apiserver looks for it", "it may be the same one")
}

func TestOneEtcdThatCannotBeReadIsAnError(t *testing.T) {
	broken := errors.New("it is away")
	for _, stores := range [][2]*member{{{broken: broken}, {}}, {{}, {broken: broken}}} {
		s := audit.NewSeveral(audit.NewLayout("", nil), stores[0], map[schema.GroupResource]audit.Store{secrets: stores[1]})
		_, err := audit.Run(t.Context(), s, audit.Options{})
		require.ErrorIs(t, err, broken)
	}
}
