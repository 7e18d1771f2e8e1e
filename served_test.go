package atrest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// api is what a server says that it serves. It is not there yet while unready,
// and nothing is while empty.
type api struct {
	*httptest.Server
	unready, empty atomic.Bool
	asked          atomic.Int64
}

func newAPI(t *testing.T) *api {
	a := &api{}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		a.asked.Add(1)
	}
	// The check of the plugins is not waited for: they may be away for long.
	if a.unready.Load() || r.URL.Path == "/readyz" && r.URL.Query().Get("exclude") != "kms-providers" {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if a.empty.Load() && r.URL.Path != "/readyz" {
		fmt.Fprint(w, `{}`)
		return
	}
	fmt.Fprint(w, map[string]string{
		"/readyz":       "ok",
		"/api":          `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":         `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}`,
		"/api/v1":       `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"secrets","kind":"Secret"},{"name":"pods/status","kind":"Pod"}]}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[{"name":"deployments","kind":"Deployment"}]}`,
	}[r.URL.Path])
}

// served is an Encryption of resources, by a server whose hook has begun.
func served(t *testing.T, a *api, resources string) (change func(resources string), clock *testingclock.FakeClock, log func() string) {
	p := faultplugin.Start(t)
	path, put := place(t, configuration(p, resources))
	o := optionsFor(path)
	clock = fakeTime(o)
	e, log := logged(t, o)
	hook := server.PostStartHookContext{Context: t.Context(), LoopbackClientConfig: &rest.Config{Host: a.URL}}
	require.NoError(t, e.PostStartHook(hook))
	return func(resources string) { put(configuration(p, resources)) }, clock, log
}

func unserved(log func() string) int { return strings.Count(log(), `kind="unserved_resource"`) }

// A typing error in a resource's name leaves the real one in plaintext.
func TestAResourceThatTheServerDoesNotHaveIsWarnedOf(t *testing.T) {
	_, _, log := served(t, newAPI(t), "secret, secrets, deployments.apps, deployment.apps")
	eventually(t, func() bool { return unserved(log) == 2 })
	require.Contains(t, log(), `is \"secrets\" meant?`)
	require.Contains(t, log(), `is \"deployments.apps\" meant?`)
	require.EqualValues(t, 2, gauge(t, "atrest_encryption_config_unserved_resources"))
}

func TestWhatTheServerHasIsLookedAtWhenItIsReady(t *testing.T) {
	a := newAPI(t)
	a.unready.Store(true)
	_, clock, log := served(t, a, "secret")
	stepUntil(t, clock, func() bool { return a.asked.Load() > 2 })
	require.Zero(t, unserved(log))

	a.empty.Store(true)
	a.unready.Store(false)
	asked := a.asked.Load()
	stepUntil(t, clock, func() bool { return a.asked.Load() > asked+2 })
	require.Zero(t, unserved(log), "a server that has nothing is not done yet")

	a.empty.Store(false)
	stepUntil(t, clock, func() bool { return unserved(log) == 1 })
}

func TestAServerThatIsNeverReadyIsGivenUp(t *testing.T) {
	a := newAPI(t)
	a.unready.Store(true)
	_, clock, log := served(t, a, "secret")
	began := clock.Now()
	eventually(t, func() bool {
		clock.Step(2 * time.Second)
		return strings.Contains(log(), "Did not check whether the server has the resources")
	})
	require.GreaterOrEqual(t, clock.Since(began), 5*time.Minute)
	require.Contains(t, log(), "the server is not ready")
	require.Zero(t, unserved(log))
}

func TestAChangedFileIsLookedAtToo(t *testing.T) {
	change, clock, log := served(t, newAPI(t), "secrets")
	stepUntil(t, clock, func() bool { return gauge(t, "atrest_encryption_config_unserved_resources") == 0 })
	change("secret")
	stepUntil(t, clock, func() bool { return unserved(log) == 1 })
	eventually(t, func() bool { return gauge(t, "atrest_encryption_config_unserved_resources") == 1 })
}
