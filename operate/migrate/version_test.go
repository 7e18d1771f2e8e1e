package migrate_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/operate/migrate"
)

// A run that watches lives longer than a version of a custom resource.
func TestAResourceThatIsServedInAnotherVersionIsFoundThere(t *testing.T) {
	version, looks := "v1", 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := metav1.GroupVersionForDiscovery{GroupVersion: "example.com/" + version, Version: version}
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis":
			looks++
			_ = json.NewEncoder(w).Encode(metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{at}, PreferredVersion: at}}})
		case "/apis/" + at.GroupVersion:
			_ = json.NewEncoder(w).Encode(metav1.APIResourceList{GroupVersion: at.GroupVersion, APIResources: []metav1.APIResource{{Name: "widgets", Verbs: metav1.Verbs{"list", "get", "patch"}}}})
		default:
			_ = json.NewEncoder(w).Encode(metav1.APIVersions{})
		}
	}))
	defer server.Close()
	now := newClock()
	cluster, err := migrate.NewCluster(&rest.Config{Host: server.URL}, now)
	require.NoError(t, err)
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	is := func(want string, after time.Duration) {
		t.Helper()
		now.Step(after)
		found, err := cluster.Version(t.Context(), widgets)
		require.NoError(t, err)
		require.Equal(t, widgets.WithVersion(want), found)
	}
	is("v1", 0)
	version = "v2"
	is("v1", time.Second)
	require.Equal(t, 1, looks, "it is not asked for each time")
	is("v2", time.Minute)
}

// One busy moment among the hundreds of questions at the end of a long run is no end of it.
func TestWhatIsNewestIsAskedAgainOfAnApiserverThatIsBusy(t *testing.T) {
	var answers []int
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		if len(answers) > 0 {
			w.WriteHeader(answers[0])
			answers = answers[1:]
			return
		}
		_, _ = w.Write([]byte(`{"metadata": {"name": "x", "resourceVersion": "7"}, "items": [{"metadata": {"name": "x", "resourceVersion": "7"}}]}`))
	}))
	defer server.Close()
	cluster, err := migrate.NewCluster(&rest.Config{Host: server.URL}, newClock())
	require.NoError(t, err)
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	busy := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusTooManyRequests}

	answers = busy
	o, revision, found, err := cluster.Newest(t.Context(), secrets)
	require.NoError(t, err)
	require.Equal(t, []any{migrate.Object{Name: "x"}, int64(7), true}, []any{o, revision, found})
	answers = busy
	revision, err = cluster.Revision(t.Context(), secrets, o)
	require.NoError(t, err)
	require.Equal(t, int64(7), revision)

	asked, answers = 0, []int{http.StatusInternalServerError}
	_, err = cluster.Revision(t.Context(), secrets, o)
	require.Error(t, err, "as of an object that does not open, which is so the next time")
	require.Equal(t, 1, asked)
}
