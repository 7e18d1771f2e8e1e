package migrate

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// withServices is the API of an apiserver that answers so when its APIServices are listed.
func withServices(t *testing.T, code int, answer string) *Cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/apis/apiregistration.k8s.io/v1/apiservices", r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	c, err := NewCluster(&rest.Config{Host: server.URL}, clock.RealClock{})
	require.NoError(t, err)
	return c
}

func TestAggregatedApiserversAreThoseWithAService(t *testing.T) {
	c := withServices(t, http.StatusOK, `{"items":[
		{"spec":{"group":"apps","version":"v1"}},
		{"spec":{"group":"metrics.k8s.io","version":"v1","service":{"namespace":"kube-system","name":"metrics"}}},
		{"spec":{"group":"shop.example.com","version":"v1","service":{"namespace":"a","name":"shop"}}},
		{"spec":{"group":"cart.example.com","version":"v1","service":{"namespace":"a","name":"shop"}}},
		{"spec":{"group":"metrics.k8s.io","version":"v1beta1","service":{"namespace":"kube-system","name":"metrics"}}}]}`)
	all, err := c.Aggregated(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Aggregated{{"a/shop", []string{"cart.example.com", "shop.example.com"}}, {"kube-system/metrics", []string{"metrics.k8s.io"}}}, all)
}

func TestWithoutAPIServicesThereAreNoAggregatedApiservers(t *testing.T) {
	all, err := withServices(t, http.StatusNotFound, `{"kind":"Status","status":"Failure","code":404,"reason":"NotFound"}`).Aggregated(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)
	_, err = withServices(t, http.StatusForbidden, `{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden"}`).Aggregated(t.Context())
	require.ErrorContains(t, err, "the user needs the verb list for apiservices (apiregistration.k8s.io)")
}
