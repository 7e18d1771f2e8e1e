package fleet_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/operate/fleet"
)

var (
	secrets    = schema.GroupResource{Resource: "secrets"}
	configMaps = schema.GroupResource{Resource: "configmaps"}
)

// write creates, patches and deletes objects of any kind.
func (s *server) write(w http.ResponseWriter, r *http.Request) {
	var object any
	if r.Method != http.MethodDelete {
		require.NoError(s.t, json.NewDecoder(r.Body).Decode(&object))
	}
	_, there := s.objects[r.URL.Path]
	switch {
	case s.refuses != 0:
		status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
			Code: int32(s.refuses), Reason: s.reason, Message: "because"}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(s.refuses)
		require.NoError(s.t, json.NewEncoder(w).Encode(status))
	case r.Method == http.MethodPost:
		require.Equal(s.t, "application/json", r.Header.Get("Content-Type"))
		name := object.(map[string]any)["metadata"].(map[string]any)["name"].(string)
		s.objects[r.URL.Path+"/"+name] = object
		w.WriteHeader(http.StatusCreated)
	case !there:
		http.NotFound(w, r)
	case r.Method == http.MethodPatch:
		require.Equal(s.t, "application/merge-patch+json", r.Header.Get("Content-Type"))
		s.objects[r.URL.Path] = object
	case r.Method == http.MethodDelete:
		delete(s.objects, r.URL.Path)
	}
}

const canary = "/api/v1/namespaces/kube-system/secrets/atrest-canary-a"

func TestACanaryIsCreatedAndThenWrittenAnew(t *testing.T) {
	s := newServer(t, nil)
	f, _ := newFleet(t, s)
	require.NoError(t, f.Write(t.Context(), "a", secrets))
	require.Equal(t, map[string]any{canary: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
		"name": "atrest-canary-a", "namespace": "kube-system",
		"annotations": map[string]any{"atrest/written": "2026-11-21T12:00:00Z 1"}}}}, s.objects)

	require.NoError(t, f.Write(t.Context(), "a", secrets))
	require.Equal(t, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{"atrest/written": "2026-11-21T12:00:00Z 2"}}}, s.objects[canary])

	require.NoError(t, f.Write(t.Context(), "a", configMaps))
	require.Equal(t, "ConfigMap", s.objects[strings.Replace(canary, "secrets", "configmaps", 1)].(map[string]any)["kind"])

	require.NoError(t, f.Clean(t.Context()))
	require.Empty(t, s.objects)
	require.NoError(t, f.Clean(t.Context()))
}

func TestCanariesLiveWhereTheyAreToldTo(t *testing.T) {
	s := newServer(t, nil)
	f, err := fleet.New([]fleet.Member{{Name: "a", Config: s.config()}}, clocktesting.NewFakePassiveClock(start), fleet.CanariesIn("mine"))
	require.NoError(t, err)
	require.NoError(t, f.Write(t.Context(), "a", secrets))
	require.Contains(t, s.objects, "/api/v1/namespaces/mine/secrets/atrest-canary-a")
}

func TestEveryInstanceHasACanaryOfItsOwn(t *testing.T) {
	s := newServer(t, nil)
	var names []string
	for _, name := range []string{"node-1", "node.1", "Node-1", "node-1.", "ü", "...", strings.Repeat("x", 300), strings.Repeat("x", 301)} {
		f, err := fleet.New([]fleet.Member{{Name: name, Config: s.config()}}, clocktesting.NewFakePassiveClock(start))
		require.NoError(t, err)
		require.NoError(t, f.Write(t.Context(), name, secrets))
	}
	for path := range s.objects {
		name := strings.TrimPrefix(path, strings.TrimSuffix(canary, "atrest-canary-a"))
		require.Empty(t, validation.IsDNS1123Subdomain(name), name)
		names = append(names, name)
	}
	require.Len(t, names, 8)
	require.Contains(t, names, "atrest-canary-node-1")
	require.True(t, slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "atrest-canary-node-1-") }))
}

func TestWhyThereIsNoCanary(t *testing.T) {
	s := newServer(t, nil)
	f, _ := newFleet(t, s)
	err := f.Write(t.Context(), "a", schema.GroupResource{Group: "apps", Resource: "deployments"})
	require.ErrorIs(t, err, fleet.ErrNoCanary)
	require.ErrorContains(t, err, "somebody has to write an object of deployments.apps through apiserver a, and that is waited for")
	require.ErrorContains(t, f.Write(t.Context(), "z", secrets), `canary through apiserver "z": there is no such apiserver: name one of the fleet`)

	s.refuses, s.reason = http.StatusForbidden, metav1.StatusReasonForbidden
	const may = "the user needs the verbs create, patch and delete for secrets and configmaps in the namespace of the canaries"
	require.EqualError(t, f.Write(t.Context(), "a", secrets), "canary kube-system/atrest-canary-a through apiserver a: because: "+may)
	err = f.Clean(t.Context())
	require.EqualError(t, err, "canaries are left, of the names atrest-canary-* in namespace kube-system: through apiserver a: because: "+may)

	s.refuses, s.reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	require.ErrorContains(t, f.Write(t.Context(), "a", secrets), "because")
	s.Close()
	require.ErrorContains(t, f.Write(t.Context(), "a", secrets), "is it up, and can it be reached from here?")
}

func TestCanariesAreRemovedThroughWhoeverAnswers(t *testing.T) {
	gone, well := newServer(t, nil), newServer(t, nil)
	f, err := fleet.New([]fleet.Member{{Name: "gone", Config: gone.config()}, {Name: "well", Config: well.config()}}, clocktesting.NewFakePassiveClock(start))
	require.NoError(t, err)
	gone.Close()
	require.NoError(t, f.Write(t.Context(), "well", secrets))
	require.NoError(t, f.Clean(t.Context()))
	require.Empty(t, well.objects)
	var deleted []string
	for _, asked := range well.asked {
		if strings.HasPrefix(asked, http.MethodDelete) {
			deleted = append(deleted, asked)
		}
	}
	require.Len(t, deleted, 4)
}
