package migrate

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// aggregating is the API of an apiserver with two others behind it, which answer so by their
// paths, and of which one is away.
var aggregating = map[string]string{
	"/apis/apiregistration.k8s.io/v1/apiservices": `{"items":[{"spec":{"group":"apps","version":"v1"}},
		{"spec":{"group":"shop.example.com","version":"v1","service":{"namespace":"a","name":"shop"}}},
		{"spec":{"group":"metrics.k8s.io","version":"v1","service":{"namespace":"kube-system","name":"metrics"}}}]}`,
	"/api": `{"kind":"APIVersions","versions":[]}`,
	"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[
		{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]},
		{"name":"shop.example.com","versions":[{"groupVersion":"shop.example.com/v1","version":"v1"}]},
		{"name":"metrics.k8s.io","versions":[{"groupVersion":"metrics.k8s.io/v1","version":"v1"}]}]}`,
	"/apis/apps/v1": `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[{"name":"deployments","verbs":["list","get","patch","delete"]}]}`,
	"/apis/shop.example.com/v1": `{"kind":"APIResourceList","groupVersion":"shop.example.com/v1","resources":[
		{"name":"carts","verbs":["list","delete"]},{"name":"prices","verbs":["list","get"]}]}`,
	"/apis/shop.example.com/v1/carts?limit=500": `{"metadata":{"continue":"more"},"items":[{"metadata":{"namespace":"x","name":"free"}},
		{"metadata":{"namespace":"x","name":"one","ownerReferences":[{"apiVersion":"v1","name":"s"}]}}]}`,
	"/apis/shop.example.com/v1/carts?continue=more&limit=500": `{"items":[{"metadata":{"namespace":"x","name":"two","ownerReferences":[{"apiVersion":"v1","name":"t"}]}}]}`,
}

func dependentsOf(t *testing.T, without ...string) (all []string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		query.Del("timeout")
		text, ok := aggregating[strings.TrimSuffix(r.URL.Path+"?"+query.Encode(), "?")]
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = `{"kind":"Status","status":"Failure","code":503,"reason":"ServiceUnavailable"}`
		}
		_, _ = fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	c, err := NewCluster(&rest.Config{Host: server.URL}, clock.RealClock{})
	require.NoError(t, err)
	err = c.Dependents(t.Context(), without, func(by string, r schema.GroupResource, o Object, owners []metav1.OwnerReference) {
		all = append(all, fmt.Sprintf("%s %s %s of %s", by, r, o, owners[0].Name))
	})
	return all, err
}

// What the garbage collector may delete is listed to its end, and only of other apiservers.
func TestWhatAggregatedApiserversServeIsToldWithItsOwners(t *testing.T) {
	all, err := dependentsOf(t, "kube-system/metrics")
	require.NoError(t, err)
	require.Equal(t, []string{"a/shop carts.shop.example.com x/one of s", "a/shop carts.shop.example.com x/two of t"}, all)
	all, err = dependentsOf(t, "kube-system/metrics", "a/shop")
	require.NoError(t, err)
	require.Empty(t, all)
}

func TestAnAggregatedApiserverThatIsAwayIsAnErrorUnlessItIsExcused(t *testing.T) {
	_, err := dependentsOf(t)
	require.ErrorContains(t, err, "what the aggregated apiserver kube-system/metrics serves cannot be listed: ")
	require.ErrorContains(t, err, "excuse it with --without-apiservers kube-system/metrics")
}
