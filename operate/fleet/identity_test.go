package fleet_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// called are the answers of a stock kube-apiserver with an identity.
func called(hash string) map[string]reply {
	return map[string]reply{"/metrics": {200, fmt.Sprintf("apiserver_encryption_config_controller_last_config_info{apiserver_id_hash=%q,hash=\"sha256:1\"} 1\n", hash)}}
}

func problems(t *testing.T, f *fleet.Fleet) map[string]string {
	found := map[string]string{}
	for name, i := range f.Observe(t.Context()) {
		found[name] = i.Problem
		require.Equal(t, i.Problem == "", !i.CheckedAt.IsZero(), "nobody knows of which it is")
	}
	return found
}

// A virtual IP and the address of a node lead to one apiserver, and the other one
// that there is writes with anything.
func TestTwoAddressesOfOneStockApiserverAreNoticed(t *testing.T) {
	one, other, third := newServer(t, called("sha256:7")), newServer(t, called("sha256:7")), newServer(t, called("sha256:8"))
	f, _ := newFleet(t, one, other, third)
	const same = "what answers here has the same apiserver_id_hash as %s: give the address of each apiserver, past any load balancer; " +
		"if they are two on hosts of one name, say that they are separate"
	require.Equal(t, map[string]string{"a": fmt.Sprintf(same, "b"), "b": fmt.Sprintf(same, "a"), "c": ""}, problems(t, f))
	other.answer("/metrics", called("sha256:8")["/metrics"])
	third.answer("/metrics", called("sha256:9")["/metrics"])
	require.Equal(t, map[string]string{"a": fmt.Sprintf(same, "b"), "b": fmt.Sprintf(same, "c"), "c": ""}, problems(t, f), "as it was a moment before")
	require.Equal(t, map[string]string{"a": "", "b": "", "c": ""}, problems(t, f))
}

func TestApiserversOnHostsOfOneNameCanBeSaidToBeSeparate(t *testing.T) {
	one, other, third := newServer(t, called("sha256:7")), newServer(t, called("sha256:7")), newServer(t, called("sha256:7"))
	f, _ := newFleetWith(t, []fleet.Option{fleet.SeparateServers("a", "b")}, one, other)
	require.Equal(t, map[string]string{"a": "", "b": ""}, problems(t, f))
	f, _ = newFleetWith(t, []fleet.Option{fleet.SeparateServers("a", "b")}, one, other, third)
	found := problems(t, f)
	require.Contains(t, found["c"], "the same apiserver_id_hash as a", "of which nobody said so")
	require.Contains(t, found["a"], "the same apiserver_id_hash as c")

	_, err := fleet.New([]fleet.Member{{Name: "a", Config: one.config()}}, clocktesting.NewFakePassiveClock(start), fleet.SeparateServers("b"))
	require.EqualError(t, err, `apiserver "b" is to be separate, and there is none of that name: name those of the fleet`)
}

// Those of this project name their processes, which tells more than the host.
func TestTwoProcessesOnOneHostAreTwo(t *testing.T) {
	of := func(process string) map[string]reply {
		return map[string]reply{"/debug/encryption": {200, fmt.Sprintf(`{"process":%q,"apiServerIDHash":"sha256:7","configHash":"sha256:1"}`, process)}}
	}
	f, _ := newFleet(t, newServer(t, of("x")), newServer(t, of("y")), newServer(t, called("sha256:7")))
	seen := f.Observe(t.Context())
	for _, name := range []string{"a", "b", "c"} {
		require.Empty(t, seen[name].Problem)
		require.Equal(t, "sha256:7", seen[name].Server)
	}
	f, _ = newFleetWith(t, []fleet.Option{fleet.SeparateServers("a", "b")}, newServer(t, of("x")), newServer(t, of("x")))
	require.Contains(t, problems(t, f)["a"], "what answers here answers as b too", "one process is one, whatever is said")
}

// Metrics may be many megabytes on a slow way, and have a time of their own.
func TestMetricsHaveATimeOfTheirOwn(t *testing.T) {
	release := make(chan struct{})
	s := newServer(t, called("sha256:7"))
	inner := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
				return
			}
		}
		inner.ServeHTTP(w, r)
	})
	host := strings.TrimPrefix(s.URL, "https://")
	f, _ := newFleetWith(t, []fleet.Option{fleet.MetricsTimeout(20 * time.Millisecond)}, s)
	require.Contains(t, problems(t, f)["a"], "no answer from "+host+" within 20ms: is it up? If it is, give its metrics more time")

	config := s.config()
	config.Timeout = 30 * time.Millisecond
	f, err := fleet.New([]fleet.Member{{Name: "a", Config: config}}, clocktesting.NewFakePassiveClock(start))
	require.NoError(t, err)
	require.Contains(t, problems(t, f)["a"], "no answer from "+host+" within 30ms")

	_, err = fleet.New([]fleet.Member{{Name: "a", Config: s.config()}}, clocktesting.NewFakePassiveClock(start), fleet.MetricsTimeout(0))
	require.EqualError(t, err, "the time for all metrics of an apiserver is 0s: give it more")

	close(release)
	f, _ = newFleet(t, s)
	require.Equal(t, rotation.Instance{CheckedAt: start, Server: "sha256:7", ConfigHash: "sha256:1", Fixed: true, Providers: map[string]rotation.Provider{}}, f.Observe(t.Context())["a"])
}

func TestWhatElseIsAskedHasTheShorterTime(t *testing.T) {
	s := newServer(t, called("sha256:7"))
	config, ends := s.config(), map[string]time.Time{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			ends[r.URL.Path], _ = r.Context().Deadline()
			return next.RoundTrip(r)
		})
	})
	f, err := fleet.New([]fleet.Member{{Name: "a", Config: config}}, clocktesting.NewFakePassiveClock(start))
	require.NoError(t, err)
	require.Empty(t, f.Observe(t.Context())["a"].Problem)
	require.Equal(t, ends["/debug/encryption"], ends["/readyz/kms-provider-0"], "they share it")
	require.GreaterOrEqual(t, ends["/metrics"].Sub(ends["/debug/encryption"]), fleet.DefaultMetricsTimeout-fleet.Timeout)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
