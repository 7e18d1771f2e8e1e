package fleet_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/fleet"
)

// asking is a fleet of one apiserver, which is to ask its plugins.
func asking(t *testing.T, s *server) *fleet.Fleet {
	f, _ := newFleetWith(t, []fleet.Option{fleet.AskingPlugins()}, s)
	return f
}

const (
	askQuestion = "POST " + healthz.AskPath
	getQuestion = "GET " + healthz.Path
)

func TestApiserversAreHadToAskTheirPlugins(t *testing.T) {
	s := newServer(t, map[string]reply{askQuestion: statusUnder(hashed.ID("B"), "kms"), healthz.Path: status("kms")})
	f := asking(t, s)
	for range 2 {
		i := f.Observe(t.Context())["a"]
		require.Empty(t, i.Problem)
		require.Equal(t, start, i.CheckedAt)
		require.Equal(t, hashed.ID("B"), i.Providers["kms"].KeyID, "the new key_id, not the one before")
	}
	require.Equal(t, []string{askQuestion, askQuestion}, s.asked)
}

func TestOneThatCannotBeHadToAskItsPluginsTellsWhatItKnows(t *testing.T) {
	for name, code := range map[string]int{"may not": 403, "is older": 404, "does not know how": 405} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, map[string]reply{askQuestion: {code, "no"}, healthz.Path: status("kms")})
			f := asking(t, s)
			for range 3 {
				i := f.Observe(t.Context())["a"]
				require.Empty(t, i.Problem)
				require.Equal(t, keyA, i.Providers["kms"].KeyID)
			}
			require.Equal(t, []string{askQuestion, getQuestion, getQuestion, getQuestion}, s.asked, "it was tried once")
		})
	}
}

func TestThatOneCannotBeHadToAskItsPluginsIsKnownOfThatOneAlone(t *testing.T) {
	older := newServer(t, map[string]reply{healthz.Path: status("kms")})
	newer := newServer(t, map[string]reply{askQuestion: status("kms")})
	f, _ := newFleetWith(t, []fleet.Option{fleet.AskingPlugins()}, older, newer)
	for range 2 {
		for _, i := range f.Observe(t.Context()) {
			require.Empty(t, i.Problem)
		}
	}
	require.Equal(t, []string{askQuestion, askQuestion}, newer.asked)
}

func TestAnyKubeAPIServerIsHadToAskItsPluginsOnce(t *testing.T) {
	s := newServer(t, map[string]reply{"/readyz/kms-providers": {200, "ok"}, "/metrics": metrics()})
	f := asking(t, s)
	look := []string{getQuestion, "GET /readyz/kms-providers", followsPath, "GET /metrics"}
	for range 2 {
		i := f.Observe(t.Context())["a"]
		require.Empty(t, i.Problem)
		require.Equal(t, keyA, i.Providers["kms"].KeyID)
	}
	require.Equal(t, slices.Concat([]string{askQuestion}, look, look), s.asked)
}

// What is wrong is told in the words of the look that takes no further right.
func TestWhateverElseKeepsOneFromAskingItsPluginsIsTriedAgain(t *testing.T) {
	for name, answer := range map[string]reply{
		"no credentials": {401, "no"}, "busy": {429, "later"}, "defect": {500, ""}, "shutting down": {503, ""}, "no status": {200, "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, map[string]reply{askQuestion: answer, healthz.Path: {503, "shutting down"}})
			f := asking(t, s)
			require.Equal(t, "/debug/encryption: 503 Service Unavailable: shutting down", f.Observe(t.Context())["a"].Problem)
			s.answer(healthz.Path, status("kms"))
			require.Empty(t, f.Observe(t.Context())["a"].Problem)
			s.answer(askQuestion, statusUnder(hashed.ID("B"), "kms"))
			require.Equal(t, hashed.ID("B"), f.Observe(t.Context())["a"].Providers["kms"].KeyID)
			require.Equal(t, []string{askQuestion, getQuestion, askQuestion, getQuestion, askQuestion}, s.asked)
		})
	}
}

// Its plugin hangs: what is wrong with it is known all the same, and has to be told.
func TestOneThatWaitsForItsPluginsForTooLongTellsWhatItKnows(t *testing.T) {
	s := newServer(t, map[string]reply{healthz.Path: status("kms")})
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-r.Context().Done()
			return
		}
		s.ServeHTTP(w, r)
	})
	config := s.config()
	config.Timeout = 2 * time.Second
	f, err := fleet.New([]fleet.Member{{Name: "a", Config: config}}, clocktesting.NewFakePassiveClock(start), fleet.AskingPlugins())
	require.NoError(t, err)
	i := f.Observe(t.Context())["a"]
	require.Empty(t, i.Problem)
	require.Equal(t, keyA, i.Providers["kms"].KeyID)
}

// followsPath is where a kube-apiserver tells whether it follows its file.
const followsPath = "GET /readyz/poststarthook/start-encryption-provider-config-automatic-reload"
