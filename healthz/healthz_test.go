package healthz_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apihealthz "k8s.io/apiserver/pkg/server/healthz"
	genericmux "k8s.io/apiserver/pkg/server/mux"

	"github.com/kube-atrest/atrest/healthz"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func writer() healthz.Provider {
	return healthz.Provider{
		Names: []string{"vault"}, Endpoint: "unix:///run/vault.sock", Role: healthz.Writes, WritesFor: []string{"secrets", "*.apps"},
		Since: now.Add(-time.Hour), WritesUntil: now.Add(3 * time.Minute),
	}
}

func broken(p healthz.Provider) healthz.Provider {
	p.Problem, p.Message, p.Since = "unreachable", "status: nobody listens", now.Add(-43*time.Second)
	p.WritesUntil = now.Add(137 * time.Second)
	return p
}

func reader() healthz.Provider {
	return healthz.Provider{Names: []string{"old", "older"}, Endpoint: "unix:///run/old.sock", Role: healthz.Reads}
}

func told(providers ...healthz.Provider) healthz.Status {
	return healthz.Status{Process: "one", ConfigHash: "sha256:1", Providers: providers}.Told(now)
}

// get asks the check as a load balancer or an operator does.
func get(t *testing.T, providers ...healthz.Provider) (int, string) {
	mux := genericmux.NewPathRecorderMux("test")
	apihealthz.InstallPathHandler(mux, "/readyz", healthz.Check(func() healthz.Status { return told(providers...) }))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/readyz/kms-providers", nil))
	return w.Code, w.Body.String()
}

func TestReady(t *testing.T) {
	for _, providers := range [][]healthz.Provider{nil, {writer()}, {writer(), reader()}, {broken(reader())}} {
		code, body := get(t, providers...)
		require.Equal(t, 200, code, body)
	}
}

func TestOneThatIsNotReadyIsEnoughWhereverItStands(t *testing.T) {
	for _, providers := range [][]healthz.Provider{
		{broken(writer())},
		{writer(), broken(writer())},
		{broken(writer()), writer()},
		{reader(), writer(), broken(reader()), broken(writer()), writer()},
	} {
		code, body := get(t, providers...)
		require.Equal(t, 500, code, body)
		require.Contains(t, body, "not ready, unreachable since")
	}
}

// The check, the state that is told and its word are one rule.
func TestTheStateIsThatOfTheCheck(t *testing.T) {
	for _, p := range []healthz.Provider{writer(), reader(), broken(writer()), broken(reader())} {
		code, _ := get(t, p)
		state := told(p).Providers[0].State
		require.Equal(t, code == 200, state != healthz.NotReady)
		require.Equal(t, p.Problem == "", state == healthz.Ready)
	}
}

// Whatever fields an apiserver comes to have, one of no known role stands against
// readiness when it has a problem.
func TestARoleThatIsNotKnownIsNotTakenForAReader(t *testing.T) {
	p := broken(reader())
	p.Role = ""
	code, _ := get(t, p)
	require.Equal(t, 500, code)
}

func TestTheLineNamesTheProviderTheCauseSinceWhenAndWhatIsLeft(t *testing.T) {
	code, body := get(t, broken(writer()), reader())
	require.Equal(t, 500, code)
	require.Equal(t, `internal server error: kms provider "vault" (writes secrets, *.apps): not ready, unreachable since `+
		`2026-01-02T03:03:22Z (43 s): status: nobody listens: writes go on for 137 s, reads for as long as it lasts; `+
		`look at the plugin at unix:///run/vault.sock; kms provider "old", "older" (read only): ok`+"\n", body)
}

func TestWhatIsLeftIsCountedDown(t *testing.T) {
	s := healthz.Status{Providers: []healthz.Provider{broken(writer())}}
	for after, want := range map[time.Duration]struct {
		left float64
		line string
	}{
		0:                 {137, "writes go on for 137 s"},
		100 * time.Second: {37, "writes go on for 37 s"},
		137 * time.Second: {0, "writes have stopped, reads go on"},
		24 * time.Hour:    {0, "writes have stopped, reads go on"},
	} {
		then := s.Told(now.Add(after))
		require.Equal(t, want.left, then.Providers[0].WritesLeft)
		require.Contains(t, then.Line(), want.line)
		require.Equal(t, now.Add(after), then.At)
	}
	require.Empty(t, s.Providers[0].State, "what was given is as it was")
	s.Providers[0].WritesUntil = time.Time{}
	require.Zero(t, s.Told(now).Providers[0].WritesLeft)
	require.Contains(t, s.Told(now).Line(), "there is no data key to write with, reads under keys used before go on; look at the plugin at unix:///run/vault.sock")
}

func TestAReaderIsDegradedAndSaysSo(t *testing.T) {
	line := told(broken(reader())).Line()
	require.Contains(t, line, `(read only): degraded, unreachable since`)
	require.Contains(t, line, "values under keys used before can be read")
}

func TestWhatIsToldIsReadBack(t *testing.T) {
	s := told(broken(writer()), reader())
	s.ConfigFile = "/etc/encryption.yaml"
	s.Reload = &healthz.Reload{LoadedAt: now, Outcome: healthz.Failed, Error: "resources[0]: no", FailedHash: "sha256:2", FailedSince: now, Retrying: true}
	w := httptest.NewRecorder()
	asked := 0
	handler := healthz.Handler(func() healthz.Status { return s }, func(context.Context) { asked++ }, http.NotFoundHandler())
	handler.ServeHTTP(w, httptest.NewRequest("GET", healthz.Path, nil))
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Zero(t, asked)
	got, err := healthz.Decode(w.Body.Bytes())
	require.NoError(t, err)
	require.Equal(t, s, got)

	w = httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("POST", healthz.AskPath, nil))
	require.Equal(t, 1, asked)
	got, err = healthz.Decode(w.Body.Bytes())
	require.NoError(t, err)
	require.Equal(t, s, got)
}

func TestWhatNoApiserverTellsIsRefused(t *testing.T) {
	for want, data := range map[string]string{
		"not JSON": "<html>", "no configHash": "{}", "at most": strings.Repeat(" ", healthz.MaxSize+1), "is this /debug/encryption?": `{"providers":7}`,
	} {
		got, err := healthz.Decode([]byte(data))
		require.ErrorContains(t, err, want)
		require.Zero(t, got)
	}
	_, err := healthz.Decode([]byte(strings.Repeat(" ", healthz.MaxSize-len(`{"configHash":"x"}`)) + `{"configHash":"x"}`))
	require.NoError(t, err)
}

// A newer apiserver may tell more.
func TestWhatIsNotKnownIsLeftOut(t *testing.T) {
	got, err := healthz.Decode([]byte(`{"configHash":"x","added":{"later":1},"providers":[{"names":["a"],"state":"another"}]}`))
	require.NoError(t, err)
	require.Equal(t, healthz.State("another"), got.Providers[0].State, "as it says itself")
}

func FuzzDecode(f *testing.F) {
	data, err := json.Marshal(told(broken(writer()), reader()))
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := healthz.Decode(data); err == nil {
			require.NotEmpty(t, s.ConfigHash)
			_, _ = io.WriteString(io.Discard, s.Told(now).Line())
		}
	})
}

func ExampleCheck() {
	check := healthz.Check(func() healthz.Status {
		return healthz.Status{Providers: []healthz.Provider{{Names: []string{"vault"}, Role: healthz.Writes, WritesFor: []string{"secrets"}}}}.Told(now)
	})
	fmt.Println(check.Name(), check.Check(nil))
	// Output: kms-providers <nil>
}

func TestTheStateIsTheAnswerToAGetAndAPostHasThePluginsAsked(t *testing.T) {
	asked := 0
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	h := healthz.Handler(func() healthz.Status { return told(writer()) }, func(context.Context) { asked++ }, next)
	for _, c := range []struct {
		method, path string
		code, asked  int
	}{
		{"GET", healthz.Path, 200, 0},
		{"GET", healthz.AskPath, 405, 0},
		{"POST", healthz.AskPath, 200, 1},
		{"GET", "/version", 418, 1},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		require.Equal(t, c.code, w.Code, c)
		require.Equal(t, c.asked, asked, c)
		if c.code == 200 {
			s, err := healthz.Decode(w.Body.Bytes())
			require.NoError(t, err)
			require.Equal(t, told(writer()), s)
			require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		}
		if c.code == 405 {
			require.Equal(t, "POST", w.Header().Get("Allow"))
		}
	}
}

func TestEncryptionThatHasEndedSaysSo(t *testing.T) {
	s := told(writer())
	s.Ended = true
	err := healthz.Check(func() healthz.Status { return s }).Check(nil)
	require.EqualError(t, err, "encryption at rest has ended in this server: nothing is read or written any longer")
}

func TestTheLastSecondOfWritingIsToldAsItsEnd(t *testing.T) {
	p := broken(writer())
	p.WritesUntil = now.Add(999 * time.Millisecond)
	require.Contains(t, told(p).Line(), "writes have stopped")
	p.WritesUntil = now.Add(time.Second)
	require.Contains(t, told(p).Line(), "writes go on for 1 s")
	p.WritesLeft, p.WritesUntil = 5, time.Time{}
	require.Zero(t, told(p).Providers[0].WritesLeft, "what is told follows from the rest")
}
