package served_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/served"
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

// seen is what a watch of a server was told to tell.
type seen struct {
	clock   *testingclock.FakeClock
	inUse   atomic.Pointer[config.Configuration]
	changed chan struct{}
	log     func() string

	mu       sync.Mutex
	warnings []string
	unserved int // -1 if that is not known
}

// watched watches a server for a configuration of resources.
func watched(t *testing.T, a *api, resources string) *seen {
	logger := ktesting.NewLogger(ignore{t}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(1)))
	s := &seen{
		clock: testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), changed: make(chan struct{}, 1), unserved: -2,
		log: func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() },
	}
	s.inUse.Store(of(t, resources))
	w := served.Watch{
		Server: &rest.Config{Host: a.URL}, Clock: s.clock, Logger: logger, InUse: s.inUse.Load, Changed: s.changed,
		Warn: s.warn, Count: s.count,
	}
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { w.Run(ctx) })
	t.Cleanup(func() { stop(); done.Wait() })
	return s
}

func of(t *testing.T, resources string) *config.Configuration {
	c, err := config.Parse([]byte(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{"resources":["`+
		strings.ReplaceAll(resources, ", ", `","`)+`"],"providers":[{"aesgcm":{"keys":[{"name":"k","secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}]}}]}]}`), config.Options{})
	require.NoError(t, err)
	return c
}

func (s *seen) change(t *testing.T, resources string) {
	s.inUse.Store(of(t, resources))
	s.changed <- struct{}{}
}

func (s *seen) warn(w config.Warning) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.warnings = append(s.warnings, w.Message)
}

func (s *seen) count(n int, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unserved = n; !known {
		s.unserved = -1
	}
}

func (s *seen) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.warnings
}

func (s *seen) text() string { return strings.Join(s.told(), "\n") }

// now is how many resources the server does not have, -1 if that is not known.
func (s *seen) now() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unserved
}

// until lets time go by in steps until a condition holds.
func (s *seen) until(t *testing.T, step time.Duration, holds func() bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.clock.Step(step)
		return holds()
	}, 30*time.Second, time.Millisecond)
}

type ignore struct{ *testing.T }

func (ignore) Log(...any) {}

// A typing error in a resource's name leaves the real one in plaintext.
func TestAResourceThatTheServerDoesNotHaveIsWarnedOf(t *testing.T) {
	s := watched(t, newAPI(t), "secret, secrets, deployments.apps, deployment.apps")
	s.until(t, 0, func() bool { return len(s.told()) == 2 })
	require.Contains(t, s.text(), `is "secrets" meant?`)
	require.Contains(t, s.text(), `is "deployments.apps" meant?`)
	s.until(t, 0, func() bool { return s.now() == 2 })
}

// A group of which the server has nothing is most often another that was meant.
func TestAWildcardOfNoGroupIsWarnedOf(t *testing.T) {
	s := watched(t, newAPI(t), "*.app, *.apps, *.")
	s.until(t, 0, func() bool { return s.now() == 1 })
	require.Contains(t, s.text(), `no resource "*.app"`)
}

func TestWhatTheServerHasIsLookedAtWhenItIsReady(t *testing.T) {
	a := newAPI(t)
	a.unready.Store(true)
	s := watched(t, a, "secret")
	s.until(t, time.Second, func() bool { return a.asked.Load() > 2 })
	require.Empty(t, s.told())

	a.empty.Store(true)
	a.unready.Store(false)
	asked := a.asked.Load()
	s.until(t, time.Second, func() bool { return a.asked.Load() > asked+2 })
	require.Empty(t, s.told(), "a server that has nothing is not done yet")

	a.empty.Store(false)
	s.until(t, time.Second, func() bool { return len(s.told()) == 1 })
}

func TestAServerThatIsNotReadyForLongIsAskedSeldom(t *testing.T) {
	a := newAPI(t)
	a.unready.Store(true)
	s := watched(t, a, "secret")
	began := s.clock.Now()
	told := func() int { return strings.Count(s.log(), "Did not check whether the server has the resources") }
	s.until(t, 2*time.Second, func() bool { return told() > 0 })
	require.GreaterOrEqual(t, s.clock.Since(began), 5*time.Minute)
	require.Contains(t, s.log(), "the server is not ready")
	require.Empty(t, s.told())
	require.Equal(t, -1, s.now())

	asked, since := a.asked.Load(), s.clock.Now()
	s.until(t, 10*time.Second, func() bool { return a.asked.Load() > asked+2 })
	require.GreaterOrEqual(t, s.clock.Since(since), 10*time.Minute)
	a.unready.Store(false)
	s.until(t, 10*time.Second, func() bool { return len(s.told()) == 1 })
	require.Equal(t, 1, told())
}

// One API that is away hides no typing error in the names of others.
func TestWhatIsNotInAnAPIThatIsAwayIsCheckedNonetheless(t *testing.T) {
	a := newAPI(t)
	a.down.Store(true)
	s := watched(t, a, "secret, deployments.apps, pod.metrics.k8s.io, pods.metrics.k8s.io")
	s.until(t, 0, func() bool { return len(s.told()) == 1 })
	require.Contains(t, s.text(), `is "secrets" meant?`)
	s.until(t, 0, func() bool { return s.now() == 1 })

	a.down.Store(false)
	s.until(t, 10*time.Second, func() bool { return s.now() == 2 })
	require.Len(t, s.told(), 2, "what was told is not told again")
	require.Contains(t, s.text(), `is "pods.metrics.k8s.io" meant?`)
}

func TestNothingIsToldOfAnAPIThatIsAway(t *testing.T) {
	a := newAPI(t)
	a.down.Store(true)
	s := watched(t, a, "secrets, pods.metrics.k8s.io")
	s.until(t, 10*time.Second, func() bool {
		return a.asked.Load() > 1 // the first look is over
	})
	require.Equal(t, -1, s.now(), "what is not known is not 0")

	a.down.Store(false)
	s.until(t, 10*time.Second, func() bool { return s.now() == 0 })
	require.Empty(t, s.told())
}

func TestAResourceThatIsDefinedLaterIsFound(t *testing.T) {
	a := newAPI(t)
	s := watched(t, a, "secrets, widgets.apps")
	s.until(t, 0, func() bool { return len(s.told()) == 1 && s.now() == 1 })
	a.unready.Store(true)
	asked, since := a.asked.Load(), s.clock.Now()
	s.until(t, 10*time.Second, func() bool { return a.asked.Load() > asked+1 })
	require.Equal(t, 1, s.now(), "a look that did not succeed tells nothing new")
	require.GreaterOrEqual(t, s.clock.Since(since), 5*time.Minute, "it answered before, and is not asked more often")

	a.defined.Store(true)
	a.unready.Store(false)
	s.until(t, 10*time.Second, func() bool { return s.now() == 0 })
	asked = a.asked.Load()
	looks := 0
	s.until(t, 10*time.Minute, func() bool { // with a moment for each
		looks++
		return looks == 50
	})
	require.Equal(t, asked, a.asked.Load(), "all is there, and nobody asks any longer")
	require.Len(t, s.told(), 1)
}

func TestAMendedFileIsNoLongerWarnedOf(t *testing.T) {
	a := newAPI(t)
	s := watched(t, a, "secret")
	s.until(t, 0, func() bool { return len(s.told()) == 1 && s.now() == 1 })
	a.unready.Store(true)
	s.change(t, "secrets")
	s.until(t, time.Second, func() bool { return s.now() == -1 })
	a.down.Store(true)
	a.unready.Store(false)
	s.until(t, time.Second, func() bool { return s.now() == 0 })
	require.Len(t, s.told(), 1)
}

func TestAChangedFileIsLookedAtToo(t *testing.T) {
	s := watched(t, newAPI(t), "secrets")
	s.until(t, time.Second, func() bool { return s.now() == 0 })
	s.change(t, "secret")
	s.until(t, time.Second, func() bool { return len(s.told()) == 1 })
	s.until(t, 0, func() bool { return s.now() == 1 })
}
