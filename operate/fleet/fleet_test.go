package fleet_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/fleet"
	"github.com/kube-atrest/atrest/operate/rotation"
)

var (
	start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	keyA  = hashed.ID("A")
)

// server is an apiserver as far as a fleet asks it. A path that it has no answer
// for is not found. Answers are by path, those to a POST by "POST " and that.
type server struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	answers map[string]reply
	objects map[string]stored
	// revision is that of the last write.
	revision int
	// refuses is the code that every question about objects is answered with, unless 0.
	refuses int
	reason  metav1.StatusReason
	// undeletable is the path of an object that cannot be deleted.
	undeletable string
	asked       []string
	queries     map[string]string // the last of each path
}

type reply struct {
	code int
	text string
}

func newServer(t *testing.T, answers map[string]reply) *server {
	s := &server{t: t, answers: answers, objects: map[string]stored{}, queries: map[string]string{}}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return &rest.Config{Host: s.URL, BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func (s *server) answer(path string, r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = r
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header()["Date"] = nil // the clock of these tests is another
	s.asked = append(s.asked, r.Method+" "+r.URL.Path)
	s.queries[r.URL.Path] = r.URL.RawQuery
	question := r.URL.Path
	switch {
	case r.Method == http.MethodPost && question == healthz.AskPath:
		question = "POST " + question
	}
	if a, ok := s.answers[question]; ok {
		w.WriteHeader(a.code)
		_, _ = io.WriteString(w, a.text)
		return
	}
	if strings.HasPrefix(question, "/api") {
		s.object(w, r)
		return
	}
	http.NotFound(w, r)
}

func status(names ...string) reply { return statusUnder(keyA, names...) }

func statusUnder(keyIDHash string, names ...string) reply {
	s := healthz.Status{ConfigHash: "sha256:1"}
	for _, name := range names {
		s.Providers = append(s.Providers, healthz.Provider{Names: []string{name}, Role: "write", State: "ready", KeyIDHash: keyIDHash, DEKWrites: 1})
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return reply{200, string(data)}
}

func metrics() reply {
	return reply{200, fmt.Sprintf(`apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="sha256:9",hash="sha256:1"} 1
apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{key_id_hash=%q,provider_name="kms"} %d
`, keyA, start.Unix())}
}

func newFleet(t *testing.T, servers ...*server) (*fleet.Fleet, *clocktesting.FakePassiveClock) {
	t.Helper()
	return newFleetWith(t, nil, servers...)
}

func newFleetWith(t *testing.T, options []fleet.Option, servers ...*server) (*fleet.Fleet, *clocktesting.FakePassiveClock) {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(start)
	var members []fleet.Member
	for i, s := range servers {
		members = append(members, fleet.Member{Name: string(rune('a' + i)), Config: s.config()})
	}
	f, err := fleet.New(members, clock, options...)
	require.NoError(t, err)
	return f, clock
}

func observe(t *testing.T, s *server) rotation.Instance {
	t.Helper()
	f, _ := newFleet(t, s)
	return f.Observe(t.Context())["a"]
}

func TestApiserversOfBothKindsAreAsked(t *testing.T) {
	ours := newServer(t, map[string]reply{"/debug/encryption": status("kms")})
	any := newServer(t, map[string]reply{"/readyz/kms-providers": {200, "ok"}, "/metrics": metrics()})
	f, _ := newFleet(t, ours, any)
	deks := 0
	require.Equal(t, map[string]rotation.Instance{
		"a": {CheckedAt: start, ConfigHash: "sha256:1", Complete: true, Fixed: true, Providers: map[string]rotation.Provider{
			"kms": {Healthy: true, KeyID: keyA, WroteKeyID: keyA, WroteAt: start, Told: rotation.Told{Role: rotation.RoleWrites, DEKs: &deks}}}},
		"b": {CheckedAt: start, Fixed: true, Server: "sha256:9", ConfigHash: "sha256:1", Providers: map[string]rotation.Provider{
			"kms": {Healthy: true, KeyID: keyA}}},
	}, f.Observe(t.Context()))
	require.Equal(t, []string{"GET /debug/encryption"}, ours.asked)
}

func TestTheLastAnswerIsKept(t *testing.T) {
	s := newServer(t, map[string]reply{"/debug/encryption": status("kms")})
	f, clock := newFleet(t, s)
	before := f.Observe(t.Context())["a"]
	before.Providers["kms"] = rotation.Provider{} // what the caller does is not kept
	clock.SetTime(start.Add(time.Minute))
	s.answer("/debug/encryption", reply{503, "shutting\n down"})
	after := f.Observe(t.Context())["a"]
	require.Equal(t, start, after.CheckedAt)
	require.Equal(t, "/debug/encryption: 503 Service Unavailable: shutting down", after.Problem)
	require.Equal(t, keyA, after.Providers["kms"].KeyID)

	s.answer("/debug/encryption", status("kms"))
	again := f.Observe(t.Context())["a"]
	require.Equal(t, start.Add(time.Minute), again.CheckedAt)
	require.Empty(t, again.Problem)
}

// Two looks may run at once, and the one that began earlier be answered later.
func TestAnAnswerThatWasOvertakenIsNotKept(t *testing.T) {
	s := newServer(t, map[string]reply{"/debug/encryption": status("kms")})
	f, clock := newFleet(t, s)
	clock.SetTime(start.Add(time.Minute))
	require.Contains(t, f.Observe(t.Context())["a"].Providers, "kms")
	clock.SetTime(start)
	s.answer("/debug/encryption", status("former"))
	require.Contains(t, f.Observe(t.Context())["a"].Providers, "former")
	s.answer("/debug/encryption", reply{503, "away"})
	last := f.Observe(t.Context())["a"]
	require.Equal(t, start.Add(time.Minute), last.CheckedAt)
	require.Contains(t, last.Providers, "kms")
}

// as is an answer of a process with a name.
func as(process string) reply {
	return reply{200, fmt.Sprintf(`{"process":%q,"configHash":"sha256:1"}`, process)}
}

// Two addresses lead to one apiserver, or a load balancer takes turns: a third
// one that nobody asks might write with anything.
func TestOneThatAnswersForTwoIsNoticed(t *testing.T) {
	one, other, third := newServer(t, map[string]reply{}), newServer(t, map[string]reply{}), newServer(t, map[string]reply{})
	f, _ := newFleet(t, one, other, third)
	both := "what answers here answers as %s too: give the address of each apiserver, past any load balancer"
	for _, round := range []struct {
		answers  [3]string
		problems [3]string
	}{
		{[3]string{"x", "y", ""}, [3]string{}},
		{[3]string{"x", "x", ""}, [3]string{fmt.Sprintf(both, "b"), fmt.Sprintf(both, "a")}},
		{[3]string{"x", "y", "z"}, [3]string{fmt.Sprintf(both, "b")}}, // it was b a moment ago
		{[3]string{"x", "y", "z"}, [3]string{}},
		{[3]string{"y", "x", "z"}, [3]string{fmt.Sprintf(both, "b"), fmt.Sprintf(both, "a")}},
		{[3]string{"restarted", "another", "z"}, [3]string{}},
		{[3]string{"z", "z", "new"}, [3]string{fmt.Sprintf(both, "b"), fmt.Sprintf(both, "a")}}, // who answers so now is named first
	} {
		for i, s := range []*server{one, other, third} {
			s.answer("/debug/encryption", as(round.answers[i]))
		}
		seen := f.Observe(t.Context())
		for i, name := range []string{"a", "b", "c"} {
			require.Equal(t, round.problems[i], seen[name].Problem)
			require.Equal(t, round.problems[i] == "", !seen[name].CheckedAt.IsZero())
		}
	}
}

func TestWhatIsWrongWithAPluginOfAnyKubeAPIServer(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]reply
		want    string
	}{
		"all at once":     {map[string]reply{"/readyz/kms-providers": {500, "internal server error: plugin is away\n"}}, "internal server error: plugin is away"},
		"without a word":  {map[string]reply{"/readyz/kms-providers": {500, ""}}, "/readyz/kms-providers says it is not ready"},
		"one by one":      {map[string]reply{"/readyz/kms-provider-0": {200, "ok"}, "/readyz/kms-provider-1": {500, "away"}}, "away"},
		"none is sick":    {map[string]reply{"/readyz/kms-provider-0": {200, "ok"}, "/readyz/kms-provider-1": {200, "ok"}}, ""},
		"none is checked": {map[string]reply{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.answers["/metrics"] = metrics()
			i := observe(t, newServer(t, c.answers))
			require.Empty(t, i.Problem)
			require.Equal(t, c.want, i.Providers["kms"].Problem)
			require.Equal(t, c.want == "", i.Providers["kms"].Healthy)
		})
	}
}

func TestWhyAnApiserverTellsNothing(t *testing.T) {
	const may = "the user needs the verb get for the nonResourceURLs /debug/encryption, /metrics and /readyz/*"
	for want, answers := range map[string]map[string]reply{
		"/debug/encryption: 403 Forbidden: " + may:                                       {"/debug/encryption": {403, "no"}},
		"/metrics: 403 Forbidden: " + may:                                                {"/metrics": {403, "no"}},
		"/readyz/kms-providers: 403 Forbidden: " + may:                                   {"/readyz/kms-providers": {403, "no"}},
		"/readyz/kms-provider-0: 403 Forbidden: " + may:                                  {"/readyz/kms-provider-0": {403, "no"}},
		"/debug/encryption: 401 Unauthorized: check the credentials in the kubeconfig":   {"/debug/encryption": {401, "no"}},
		"/debug/encryption: 500 Internal Server Error: it says no more":                  {"/debug/encryption": {500, ""}},
		"/metrics: 404 Not Found: 404 page not found":                                    {},
		"state of the apiserver has no configHash: is this /debug/encryption?":           {"/debug/encryption": {200, "{}"}},
		"state of the apiserver is 4194305 bytes long, at most 4194304 are read":         {"/debug/encryption": {200, strings.Repeat(" ", 5<<20)}},
		"it is no kube-apiserver with --encryption-provider-config, or older than v1.30": {"/metrics": {200, "up 1\n"}},
		"metrics of the apiserver: the answer is over 67108864 bytes long":               {"/metrics": {200, strings.Repeat(strings.Repeat("x", 1023)+"\n", 64<<10+1)}},
	} {
		i := observe(t, newServer(t, answers))
		require.Contains(t, i.Problem, want)
		require.Zero(t, i.CheckedAt)
		require.Empty(t, i.Providers)
	}
}

func TestAnApiserverThatHangsUpTellsNothing(t *testing.T) {
	for _, path := range []string{"/debug/encryption", "/readyz/kms-providers", "/metrics"} {
		s := newServer(t, map[string]reply{"/readyz/kms-providers": {200, "ok"}, "/metrics": metrics()})
		require.Empty(t, observe(t, s).Problem)
		answers := s.Config.Handler
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == path {
				panic(http.ErrAbortHandler)
			}
			answers.ServeHTTP(w, r)
		})
		i := observe(t, s)
		require.Contains(t, i.Problem, "is it up, and can it be reached from here?", path)
		require.Zero(t, i.CheckedAt)
	}
}

func TestAnApiserverThatIsAway(t *testing.T) {
	gone := newServer(t, nil)
	f, _ := newFleet(t, gone)
	gone.Close()
	require.Regexp(t, `connection refused: is it up, and can it be reached from here\?$`, f.Observe(t.Context())["a"].Problem)

	stranger := newServer(t, map[string]reply{"/debug/encryption": status("kms")})
	config := stranger.config()
	config.CAData = nil
	f, err := fleet.New([]fleet.Member{{Name: "a", Config: config}}, clocktesting.NewFakePassiveClock(start))
	require.NoError(t, err)
	require.Regexp(t, `x509: .*: check the address and the CA in the kubeconfig$`, f.Observe(t.Context())["a"].Problem)
}

func TestOneThatHangsDoesNotHoldUpTheOthers(t *testing.T) {
	release := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-release }))
	t.Cleanup(hangs.Close)
	t.Cleanup(func() { close(release) })
	well := newServer(t, map[string]reply{"/debug/encryption": status("kms")})
	f, err := fleet.New([]fleet.Member{
		{Name: "hangs", Config: &rest.Config{Host: hangs.URL, Timeout: 50 * time.Millisecond}},
		{Name: "well", Config: well.config()},
	}, clocktesting.NewFakePassiveClock(start))
	require.NoError(t, err)
	seen := f.Observe(t.Context())
	require.Empty(t, seen["well"].Problem)
	require.Equal(t, "no answer from "+strings.TrimPrefix(hangs.URL, "http://")+" within 50ms: is it up, and can it be reached from here?", seen["hangs"].Problem)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, "context canceled", f.Observe(ctx)["hangs"].Problem)
}

func TestClocksOfApiserversAreCorrected(t *testing.T) {
	ahead := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", start.Add(time.Hour).Format(http.TimeFormat))
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `apiserver_encryption_config_controller_last_config_info{hash="sha256:1"} 1
apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds{key_id_hash="x",provider_name="kms",transformation_type="to_storage"} %d
`, start.Add(time.Hour).Unix())
	}))
	t.Cleanup(ahead.Close)
	f, err := fleet.New([]fleet.Member{{Name: "a", Config: &rest.Config{Host: ahead.URL}}}, clocktesting.NewFakePassiveClock(start))
	require.NoError(t, err)
	require.Equal(t, start, f.Observe(t.Context())["a"].Providers["kms"].WroteAt)
}

func TestWhatIsNoFleet(t *testing.T) {
	one := &rest.Config{Host: "https://one:6443"}
	for want, members := range map[string][]fleet.Member{
		"no apiservers: name each that there is":                                                                               nil,
		"an apiserver has no name: name each":                                                                                  {{Config: one}},
		`apiserver "a" has no address: give the configuration that leads to it`:                                                {{Name: "a"}},
		`apiserver "a" is named twice: name each once`:                                                                         {{"a", one}, {"a", &rest.Config{Host: "two"}}},
		`apiservers "a" and "b" both lead to https://one:6443: give the address of each, past any load balancer`:               {{"a", one}, {"b", one}},
		`client for apiserver "a": unable to load root certificates: unable to parse bytes as PEM block: check the kubeconfig`: {{"a", &rest.Config{Host: "https://one", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}}}},
		`client for apiserver "a": host must be a URL or a host:port pair: "http:///"`:                                         {{"a", &rest.Config{Host: "http:///"}}},
	} {
		_, err := fleet.New(members, clocktesting.NewFakePassiveClock(start))
		require.ErrorContains(t, err, want)
	}
}

func TestAFleetMayBeUsedAtOnce(t *testing.T) {
	s := newServer(t, map[string]reply{"/debug/encryption": status("kms")})
	f, _ := newFleet(t, s, newServer(t, map[string]reply{"/debug/encryption": status("kms")}))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, i := range f.Observe(t.Context()) {
				i.Providers["mine"] = rotation.Provider{}
			}
		})
		all.Go(func() { _, _ = f.Write(t.Context(), "a", secrets) })
		all.Go(func() { _ = f.Clean(t.Context()) })
	}
	all.Wait()
}
