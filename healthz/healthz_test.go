package healthz_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	genericmux "k8s.io/apiserver/pkg/server/mux"

	apihealthz "k8s.io/apiserver/pkg/server/healthz"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/healthz"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func writer() healthz.Provider {
	return healthz.Provider{
		Names: []string{"vault"}, Endpoint: "unix:///run/vault.sock", Writes: []string{"secrets", "*.apps"},
		Since: now.Add(-time.Hour), WritesUntil: now.Add(3 * time.Minute),
	}
}

func broken(p healthz.Provider) healthz.Provider {
	p.Problem, p.Cause, p.Since = "unreachable", errors.New("status: nobody listens"), now.Add(-43*time.Second)
	p.WritesUntil = now.Add(137 * time.Second)
	return p
}

func reader() healthz.Provider {
	return healthz.Provider{Names: []string{"old", "older"}, Endpoint: "unix:///run/old.sock"}
}

// get asks the check as a load balancer or an operator does.
func get(t *testing.T, providers ...healthz.Provider) (int, string) {
	mux := genericmux.NewPathRecorderMux("test")
	apihealthz.InstallPathHandler(mux, "/readyz", healthz.New(testingclock.NewFakePassiveClock(now), func() []healthz.Provider { return providers }))
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

func TestTheTextNamesTheProviderTheCauseSinceWhenAndWhatIsLeft(t *testing.T) {
	code, body := get(t, broken(writer()), reader())
	require.Equal(t, 500, code)
	require.Equal(t, `internal server error: kms provider "vault" (writes secrets, *.apps): not ready, unreachable since `+
		`2026-01-02T03:03:22Z (43 s): status: nobody listens: writes go on for 137 s, reads for as long as it lasts; `+
		`look at the plugin at unix:///run/vault.sock; kms provider "old", "older" (read only): ok`+"\n", body)
}

func TestTheTextCountsDown(t *testing.T) {
	p := broken(writer())
	for after, want := range map[time.Duration]string{
		0:                 "writes go on for 137 s",
		100 * time.Second: "writes go on for 37 s",
		137 * time.Second: "writes have stopped, reads go on",
		24 * time.Hour:    "writes have stopped, reads go on",
	} {
		require.Contains(t, healthz.Text([]healthz.Provider{p}, now.Add(after)), want)
	}
	p.WritesUntil = time.Time{}
	require.Contains(t, healthz.Text([]healthz.Provider{p}, now), "there is no data key to write with, reads under keys used before go on; look at the plugin at unix:///run/vault.sock")
}

func TestAReaderIsDegradedAndSaysSo(t *testing.T) {
	text := healthz.Text([]healthz.Provider{broken(reader())}, now)
	require.Contains(t, text, `(read only): degraded, unreachable since`)
	require.Contains(t, text, "values under keys used before can be read")
}

func ExampleNew() {
	check := healthz.New(testingclock.NewFakePassiveClock(now), func() []healthz.Provider {
		return []healthz.Provider{{Names: []string{"vault"}, Endpoint: "unix:///run/vault.sock", Writes: []string{"secrets"}}}
	})
	fmt.Println(check.Name(), check.Check(nil))
	// Output: kms-providers <nil>
}
