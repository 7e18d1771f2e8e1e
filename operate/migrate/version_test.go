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
