package atrest_test

import (
	"context"
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
// and nothing is while empty. It has an aggregated API, metrics.k8s.io, which is
// away while down, and widgets when those are defined.
type api struct {
	*httptest.Server
	unready, empty, down, defined atomic.Bool
	asked                         atomic.Int64
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
	if a.down.Load() && r.URL.Path == "/apis/metrics.k8s.io/v1beta1" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	apps := []string{"deployments"}
	if a.defined.Load() {
		apps = append(apps, "widgets")
	}
	fmt.Fprint(w, map[string]string{
		"/readyz":                      "ok",
		"/api":                         `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":                        `{"kind":"APIGroupList","apiVersion":"v1","groups":[` + group("apps", "v1") + "," + group("metrics.k8s.io", "v1beta1") + `]}`,
		"/api/v1":                      list("v1", "secrets", "pods/status"),
		"/apis/apps/v1":                list("apps/v1", apps...),
		"/apis/metrics.k8s.io/v1beta1": list("metrics.k8s.io/v1beta1", "pods"),
	}[r.URL.Path])
}

func group(name, version string) string {
	return fmt.Sprintf(`{"name":%q,"versions":[{"groupVersion":"%[1]s/%[2]s","version":%[2]q}]}`, name, version)
}

func list(version string, names ...string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf(`{"name":%q}`, name))
	}
	return fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":%q,"resources":[%s]}`, version, strings.Join(all, ","))
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

// unservedNow is what the metrics tell, -1 if that is not known.
func unservedNow(t *testing.T) float64 {
	return gauge(t, "atrest_encryption_config_unserved_resources")
}

func unserved(log func() string) int { return strings.Count(log(), `kind="unserved_resource"`) }

// A typing error in a resource's name leaves the real one in plaintext.
func TestAResourceThatTheServerDoesNotHaveIsWarnedOf(t *testing.T) {
	_, _, log := served(t, newAPI(t), "secret, secrets, deployments.apps, deployment.apps")
	eventually(t, func() bool { return unserved(log) == 2 })
	require.Contains(t, log(), `is \"secrets\" meant?`)
	require.Contains(t, log(), `is \"deployments.apps\" meant?`)
	eventually(t, func() bool { return unservedNow(t) == 2 })
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

func TestAServerThatIsNotReadyForLongIsAskedSeldom(t *testing.T) {
	a := newAPI(t)
	a.unready.Store(true)
	_, clock, log := served(t, a, "secret")
	began := clock.Now()
	told := func() int { return strings.Count(log(), "Did not check whether the server has the resources") }
	eventually(t, func() bool {
		clock.Step(2 * time.Second)
		return told() > 0
	})
	require.GreaterOrEqual(t, clock.Since(began), 5*time.Minute)
	require.Contains(t, log(), "the server is not ready")
	require.Zero(t, unserved(log))
	require.EqualValues(t, -1, unservedNow(t))

	asked, since := a.asked.Load(), clock.Now()
	eventually(t, func() bool {
		clock.Step(10 * time.Second)
		return a.asked.Load() > asked+2
	})
	require.GreaterOrEqual(t, clock.Since(since), 10*time.Minute)
	a.unready.Store(false)
	eventually(t, func() bool {
		clock.Step(10 * time.Second)
		return unserved(log) == 1
	})
	require.Equal(t, 1, told())
}

// One API that is away hides no typing error in the names of others.
func TestWhatIsNotInAnAPIThatIsAwayIsCheckedNonetheless(t *testing.T) {
	a := newAPI(t)
	a.down.Store(true)
	_, clock, log := served(t, a, "secret, deployments.apps, pod.metrics.k8s.io, pods.metrics.k8s.io")
	eventually(t, func() bool { return unserved(log) == 1 })
	require.Contains(t, log(), `is \"secrets\" meant?`)
	eventually(t, func() bool { return unservedNow(t) == 1 })

	a.down.Store(false)
	eventually(t, func() bool {
		clock.Step(10 * time.Second)
		return unservedNow(t) == 2
	})
	require.Equal(t, 2, unserved(log), "what was told is not told again")
	require.Contains(t, log(), `is \"pods.metrics.k8s.io\" meant?`)
}

func TestNothingIsToldOfAnAPIThatIsAway(t *testing.T) {
	a := newAPI(t)
	a.down.Store(true)
	_, clock, log := served(t, a, "secrets, pods.metrics.k8s.io")
	eventually(t, func() bool {
		clock.Step(10 * time.Second)
		return a.asked.Load() > 1 // the first look is over
	})
	require.EqualValues(t, -1, unservedNow(t), "what is not known is not 0")

	a.down.Store(false)
	eventually(t, func() bool {
		clock.Step(10 * time.Second)
		return unservedNow(t) == 0
	})
	require.Zero(t, unserved(log))
}

func TestAResourceThatIsDefinedLaterIsFound(t *testing.T) {
	a := newAPI(t)
	_, clock, log := served(t, a, "secrets, widgets.apps")
	eventually(t, func() bool { return unserved(log) == 1 && unservedNow(t) == 1 })
	a.unready.Store(true)
	asked := a.asked.Load()
	eventually(t, func() bool {
		clock.Step(10 * time.Second)
		return a.asked.Load() > asked+1
	})
	require.EqualValues(t, 1, unservedNow(t), "a look that did not succeed tells nothing new")

	a.defined.Store(true)
	a.unready.Store(false)
	eventually(t, func() bool {
		clock.Step(10 * time.Second)
		return unservedNow(t) == 0
	})
	asked = a.asked.Load()
	looks := 0
	eventually(t, func() bool { // with a moment for each
		clock.Step(10 * time.Minute)
		looks++
		return looks == 50
	})
	require.Equal(t, asked, a.asked.Load(), "all is there, and nobody asks any longer")
	require.Equal(t, 1, unserved(log))
}

func TestAMendedFileIsNoLongerWarnedOf(t *testing.T) {
	a := newAPI(t)
	change, clock, log := served(t, a, "secret")
	eventually(t, func() bool { return unserved(log) == 1 && unservedNow(t) == 1 })
	a.unready.Store(true)
	change("secrets")
	stepUntil(t, clock, func() bool { return unservedNow(t) == -1 })
	a.down.Store(true)
	a.unready.Store(false)
	stepUntil(t, clock, func() bool { return unservedNow(t) == 0 })
	require.Equal(t, 1, unserved(log))
}

func TestAChangedFileIsLookedAtToo(t *testing.T) {
	change, clock, log := served(t, newAPI(t), "secrets")
	stepUntil(t, clock, func() bool { return unservedNow(t) == 0 })
	change("secret")
	stepUntil(t, clock, func() bool { return unserved(log) == 1 })
	eventually(t, func() bool { return unservedNow(t) == 1 })
}

// Close has much to let go of, and kube-apiserver a bounded time to end in.
func TestCloseDoesNotWaitForAServerThatDoesNotAnswer(t *testing.T) {
	asked, over := make(chan struct{}, 1), make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-r.Context().Done(): // nobody waits for the answer
		case <-over:
		}
	}))
	t.Cleanup(hangs.Close)
	path, _ := place(t, fileOf(rule("secrets", aesgcm)))
	e := start(t, optionsFor(path))
	t.Cleanup(func() { close(over) })
	ctx, stop := context.WithCancel(t.Context())
	loopback := &rest.Config{Host: hangs.URL, Timeout: time.Hour}
	require.NoError(t, e.PostStartHook(server.PostStartHookContext{Context: ctx, LoopbackClientConfig: loopback}))
	<-asked
	stop()
	var closed atomic.Bool
	go func() { e.Close(); closed.Store(true) }()
	eventually(t, closed.Load)
}
