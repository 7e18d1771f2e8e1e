package fleet_test

import (
	"encoding/json"
	"fmt"
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

// stored is an object, and its version.
type stored struct {
	object  any
	version int
}

// object creates, patches, deletes and reads objects of any kind.
func (s *server) object(w http.ResponseWriter, r *http.Request) {
	var object any
	if r.Method == http.MethodPost || r.Method == http.MethodPatch {
		require.NoError(s.t, json.NewDecoder(r.Body).Decode(&object))
	}
	at := r.URL.Path
	_, there := s.objects[at]
	switch {
	case s.refuses != 0:
		s.refuse(w, s.refuses, s.reason)
		return
	case r.Method == http.MethodPost:
		require.Equal(s.t, "application/json", r.Header.Get("Content-Type"))
		at += "/" + object.(map[string]any)["metadata"].(map[string]any)["name"].(string)
		s.store(at, object)
	case !there:
		s.refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	case r.Method == http.MethodPatch:
		require.Equal(s.t, "application/merge-patch+json", r.Header.Get("Content-Type"))
		s.store(at, object)
	case r.Method == http.MethodGet:
		require.Empty(s.t, r.URL.RawQuery, "with a resourceVersion the answer is from memory")
	case r.Method == http.MethodDelete && at == s.undeletable:
		s.refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		return
	case r.Method == http.MethodDelete:
		delete(s.objects, at)
		return
	}
	require.NoError(s.t, json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": fmt.Sprint(s.objects[at].version)}}))
}

func (s *server) store(at string, object any) {
	s.revision++
	s.objects[at] = stored{object, s.revision}
}

func (s *server) refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	status := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: "because"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	require.NoError(s.t, json.NewEncoder(w).Encode(status))
}

// write has a fleet write, which has to work.
func write(t *testing.T, f *fleet.Fleet, instance string, r schema.GroupResource) fleet.Written {
	t.Helper()
	w, err := f.Write(t.Context(), instance, r)
	require.NoError(t, err)
	return w
}

const canary = "/api/v1/namespaces/kube-system/secrets/atrest-canary-a"

func TestACanaryIsCreatedAndThenWrittenAnew(t *testing.T) {
	s := newServer(t, nil)
	f, _ := newFleet(t, s)
	require.Equal(t, fleet.Written{Resource: secrets, Namespace: "kube-system", Name: "atrest-canary-a", Version: 1}, write(t, f, "a", secrets))
	first := writtenAt(t, s, canary)
	require.Regexp(t, "^2026-11-21T12:00:00Z [A-Z2-7]{26} 1$", first)
	require.Equal(t, map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
		"name": "atrest-canary-a", "namespace": "kube-system", "annotations": map[string]any{"atrest/written": first}}}, s.objects[canary].object)

	require.Equal(t, int64(2), write(t, f, "a", secrets).Version)
	second := writtenAt(t, s, canary)
	require.Equal(t, strings.TrimSuffix(first, "1")+"2", second)
	require.Equal(t, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"atrest/written": second}}}, s.objects[canary].object)

	write(t, f, "a", configMaps)
	require.Equal(t, "ConfigMap", s.objects[strings.Replace(canary, "secrets", "configmaps", 1)].object.(map[string]any)["kind"])

	require.NoError(t, f.Clean(t.Context()))
	require.Empty(t, s.objects)
	require.NoError(t, f.Clean(t.Context()))
}

func writtenAt(t *testing.T, s *server, path string) string {
	t.Helper()
	meta := s.objects[path].object.(map[string]any)["metadata"].(map[string]any)
	return meta["annotations"].(map[string]any)["atrest/written"].(string)
}

// One that would change nothing is not written, and shows nothing.
func TestCanariesOfTwoFleetsAtOneMomentDiffer(t *testing.T) {
	s := newServer(t, nil)
	seen := map[string]bool{}
	for range 2 {
		f, _ := newFleet(t, s)
		for range 2 {
			write(t, f, "a", secrets)
			seen[writtenAt(t, s, canary)] = true
		}
	}
	require.Len(t, seen, 4)
}

func TestCanariesLiveWhereTheyAreToldTo(t *testing.T) {
	s := newServer(t, nil)
	f, err := fleet.New([]fleet.Member{{Name: "a", Config: s.config()}}, clocktesting.NewFakePassiveClock(start), fleet.CanariesIn("mine"))
	require.NoError(t, err)
	write(t, f, "a", secrets)
	require.Contains(t, s.objects, "/api/v1/namespaces/mine/secrets/atrest-canary-a")
}

func TestEveryInstanceHasACanaryOfItsOwn(t *testing.T) {
	s := newServer(t, nil)
	var names []string
	for _, name := range []string{"node-1", "node.1", "Node-1", "node-1.", "ü", "...", strings.Repeat("x", 300), strings.Repeat("x", 301)} {
		f, err := fleet.New([]fleet.Member{{Name: name, Config: s.config()}}, clocktesting.NewFakePassiveClock(start))
		require.NoError(t, err)
		write(t, f, name, secrets)
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
	_, err := f.Write(t.Context(), "a", schema.GroupResource{Group: "apps", Resource: "deployments"})
	require.ErrorIs(t, err, fleet.ErrNoCanary)
	require.ErrorContains(t, err, "rewrite an object of deployments.apps that exists, through apiserver a")
	_, err = f.Write(t.Context(), "z", secrets)
	require.ErrorContains(t, err, `canary through apiserver "z": there is no such apiserver: name one of the fleet`)

	s.refuses, s.reason = http.StatusForbidden, metav1.StatusReasonForbidden
	const may = "the user needs the verbs get, create, patch and delete for secrets and configmaps in the namespace of the canaries"
	_, err = f.Write(t.Context(), "a", secrets)
	require.EqualError(t, err, "canary secrets kube-system/atrest-canary-a through apiserver a: because: "+may)
	err = f.Clean(t.Context())
	require.EqualError(t, err, "canaries are left, of the names atrest-canary-* in namespace kube-system: through apiserver a: because: "+may)

	s.refuses, s.reason = http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable
	_, err = f.Write(t.Context(), "a", secrets)
	require.ErrorContains(t, err, "because")
	s.Close()
	_, err = f.Write(t.Context(), "a", secrets)
	require.ErrorContains(t, err, "is it up, and can it be reached from here?")
}

func TestWhereNoApiserverWasReachedNoCanariesAreLeft(t *testing.T) {
	s := newServer(t, nil)
	f, _ := newFleet(t, s)
	require.NoError(t, f.Clean(t.Context()))
	s.Close()
	_, err := f.Write(t.Context(), "a", secrets)
	require.ErrorContains(t, err, "is it up, and can it be reached from here?")
	require.NoError(t, f.Clean(t.Context()))

	s = newServer(t, nil) // one may be, of a request that was not answered
	f, _ = newFleet(t, s)
	s.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	_, err = f.Write(t.Context(), "a", secrets)
	require.Error(t, err)
	require.ErrorContains(t, f.Clean(t.Context()), "canaries are left")
}

func TestCanariesAreRemovedThroughWhoeverAnswers(t *testing.T) {
	gone, well := newServer(t, nil), newServer(t, nil)
	f, err := fleet.New([]fleet.Member{{Name: "gone", Config: gone.config()}, {Name: "well", Config: well.config()}}, clocktesting.NewFakePassiveClock(start))
	require.NoError(t, err)
	gone.Close()
	write(t, f, "well", secrets)
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
