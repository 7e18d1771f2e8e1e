package fleet_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/fleet"
)

var (
	secretsV1 = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	nodesV1   = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "nodes"}
)

func TestWhatOneWroteIsReadThroughAnother(t *testing.T) {
	one, other := newServer(t, nil), newServer(t, nil)
	other.objects = one.objects // of one etcd
	f, _ := newFleet(t, one, other)
	require.Equal(t, []string{"a", "b"}, f.Names())
	w := write(t, f, "a", secrets)
	require.NoError(t, f.Read(t.Context(), "b", secretsV1, w))
	require.Equal(t, []string{"GET " + canary}, other.asked)

	newer := write(t, f, "a", secrets)
	err := f.Read(t.Context(), "b", secretsV1, w)
	require.ErrorIs(t, err, fleet.ErrAnotherVersion)
	require.ErrorContains(t, err, "apiserver b reads version 2 of secrets kube-system/atrest-canary-a, of which version 1 was written: another has written it since")
	require.NoError(t, f.Read(t.Context(), "b", secretsV1, newer))
}

func TestAnObjectOfTheWholeClusterIsTouchedAndRead(t *testing.T) {
	s := newServer(t, nil)
	f, _ := newFleet(t, s)
	s.store("/apis/example.com/v1/nodes/one", nil)
	s.store("/apis/example.com/v1/namespaces/mine/nodes/one", nil)
	w, err := f.Touch(t.Context(), "a", nodesV1, "", "one")
	require.NoError(t, err)
	require.Equal(t, fleet.Written{Resource: nodesV1.GroupResource(), Name: "one", Version: 3}, w)
	require.Equal(t, map[string]any{}, s.objects["/apis/example.com/v1/nodes/one"].object, "the patch changes nothing")
	require.NoError(t, f.Read(t.Context(), "a", nodesV1, w))

	w, err = f.Touch(t.Context(), "a", nodesV1, "mine", "one")
	require.NoError(t, err)
	require.Equal(t, fleet.Written{Resource: nodesV1.GroupResource(), Namespace: "mine", Name: "one", Version: 4}, w)
	require.Equal(t, "nodes.example.com mine/one", w.String())
}

func TestWhyAnObjectIsNotReadOrTouched(t *testing.T) {
	s := newServer(t, nil)
	f, _ := newFleet(t, s)
	w := write(t, f, "a", secrets)
	const object = "secrets kube-system/atrest-canary-a through apiserver a: because: "
	for _, c := range []struct {
		code        int
		reason      metav1.StatusReason
		read, touch string
	}{
		{http.StatusInternalServerError, metav1.StatusReasonInternalError, "it answers so when it cannot encrypt or decrypt: see to the KMS plugin of this apiserver", "see to the KMS plugin of this apiserver"},
		{http.StatusInternalServerError, "StorageReadError", "it answers so when it cannot encrypt or decrypt", "it answers so when it cannot encrypt or decrypt"},
		{http.StatusForbidden, metav1.StatusReasonForbidden, "the user needs the verb get for secrets", "the user needs the verb patch for secrets"},
		{http.StatusNotFound, metav1.StatusReasonNotFound, "if it is there, this apiserver keeps it in another etcd", "if it is there, this apiserver keeps it in another etcd"},
	} {
		s.refuses, s.reason = c.code, c.reason
		require.ErrorContains(t, f.Read(t.Context(), "a", secretsV1, w), "reading "+object+c.read)
		got, err := f.Touch(t.Context(), "a", secretsV1, w.Namespace, w.Name)
		require.ErrorContains(t, err, "rewriting "+object)
		require.ErrorContains(t, err, c.touch)
		require.Zero(t, got)
		_, err = f.Write(t.Context(), "a", secrets)
		require.Equal(t, c.code == http.StatusInternalServerError, strings.Contains(err.Error(), "see to the KMS plugin of this apiserver"), err)
	}
	require.ErrorContains(t, f.Read(t.Context(), "z", secretsV1, w), `reading an object through apiserver "z": there is no such apiserver`)
	_, err := f.Touch(t.Context(), "z", secretsV1, "", "x")
	require.ErrorContains(t, err, `rewriting an object through apiserver "z": there is no such apiserver`)
	s.Close()
	require.ErrorContains(t, f.Read(t.Context(), "a", secretsV1, w), "is it up, and can it be reached from here?")
}

// Nothing can be found in etcd by what is no revision of it.
func TestAVersionThatIsNoRevisionIsRefused(t *testing.T) {
	for _, version := range []string{`"0"`, `"-1"`, `""`, `"newest"`, `"99999999999999999999"`} {
		s := newServer(t, nil)
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"metadata":{"resourceVersion":` + version + `}}`))
		})
		f, _ := newFleet(t, s)
		_, err := f.Write(t.Context(), "a", secrets)
		require.ErrorContains(t, err, "canary secrets kube-system/atrest-canary-a through apiserver a: it answers with the resourceVersion "+version[:1])
		require.ErrorContains(t, f.Read(t.Context(), "a", secretsV1, fleet.Written{Resource: secrets, Name: "x"}), "which is no revision of etcd")
	}
}

// What one apiserver cannot delete does not keep the others from being removed.
func TestCanariesAreRemovedBesideOneThatCannotBe(t *testing.T) {
	s := newServer(t, nil)
	f, _ := newFleet(t, s)
	write(t, f, "a", secrets)
	write(t, f, "a", configMaps)
	s.undeletable = canary
	require.ErrorContains(t, f.Clean(t.Context()), "canaries are left")
	require.Len(t, s.objects, 1)
	s.undeletable = ""
	require.NoError(t, f.Clean(t.Context()))
	require.Empty(t, s.objects)
}
