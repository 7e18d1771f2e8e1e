package atrest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/hashed"
	storedform "github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/reload"
)

// logged starts with a log that can be read.
func logged(t *testing.T, o *atrest.Options) (*atrest.Encryption, func() string) {
	logger := ktesting.NewLogger(ignore{t}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(1)))
	e, err := o.Start(klog.NewContext(t.Context(), logger), "test-apiserver")
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e, func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
}

// ignore keeps the log out of the test's output.
type ignore struct{ *testing.T }

func (ignore) Log(...any) {}

func getStatus(t *testing.T, e *atrest.Encryption) (s healthz.Status) {
	w := httptest.NewRecorder()
	e.ServeStatus(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", healthz.Path, nil))
	require.Equal(t, 200, w.Code)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s))
	return s
}

func TestStatusIsTheCheckAsData(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	p, old := faultplugin.Start(t), faultplugin.New(t)
	path, _ := place(t, strings.Replace(configuration(p, "secrets"), "  - identity", fmt.Sprintf("  - kms: {apiVersion: v2, name: old, endpoint: %q}\n  - identity", old.Endpoint()), 1))
	o := optionsFor(path)
	o.AutomaticReload, o.KMS.Clock = false, clock
	e := start(t, o)
	stored(t, e, secrets)

	s := getStatus(t, e)
	require.Equal(t, path, s.ConfigFile)
	require.Regexp(t, "^sha256:[0-9a-f]{64}$", s.ConfigHash)
	require.Len(t, s.Process, 36)
	require.Equal(t, envelope.HashKeyID("test-apiserver"), s.APIServerIDHash)
	require.Nil(t, s.Reload)
	require.Len(t, s.Providers, 2)
	w := s.Providers[0]
	require.Equal(t, []any{healthz.Writes, healthz.Ready, "", 180.0, uint64(1)}, []any{w.Role, w.State, w.Problem, w.WritesLeft, w.DEKWrites})
	require.Equal(t, []string{"secrets"}, w.WritesFor)
	require.Regexp(t, "^sha256:", w.KeyIDHash)
	require.Equal(t, healthz.Reads, s.Providers[1].Role)
	require.Eventually(t, func() bool { return getStatus(t, e).Providers[1].State == "degraded" }, 30*time.Second, time.Millisecond)

	p.Kill()
	stepUntil(t, clock, func() bool { return getStatus(t, e).Providers[0].State == "not_ready" })
	clock.SetTime(s.Providers[0].LastHealthy.Add(time.Minute))
	s = getStatus(t, e)
	require.Equal(t, "unreachable", s.Providers[0].Problem)
	require.NotEmpty(t, s.Providers[0].Message)
	require.Equal(t, 120.0, s.Providers[0].WritesLeft)
	require.Equal(t, []any{healthz.Degraded, "unreachable"}, []any{s.Providers[1].State, s.Providers[1].Problem})
	old.Serve()
	require.Eventually(t, func() bool { return getStatus(t, e).Providers[1].State == "ready" }, 30*time.Second, time.Millisecond)
	require.Equal(t, w.KeyIDHash, getStatus(t, e).Providers[1].KeyIDHash, "both have the key_id 1")
}

func TestStatusTellsWhatAProviderHasDone(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	o := optionsFor(path)
	clock := fakeTime(o)
	began := clock.Now()
	e := start(t, o)
	var sealed string
	for range 3 {
		sealed = stored(t, e, secrets)
		_, _, err := read(t, e, sealed)
		require.NoError(t, err)
	}
	clock.Step(time.Minute)
	eventually(t, func() bool { s := getStatus(t, e).Providers[0]; return s.Reads == 3 && s.LastHealthy.After(began) })
	now := clock.Now().UTC()
	told := getStatus(t, e).Providers[0]
	object, err := storedform.Parse([]byte(strings.TrimPrefix(sealed, "k8s:enc:kms:v2:test:")))
	require.NoError(t, err)
	require.Equal(t, healthz.Provider{
		Names: []string{"test"}, Endpoint: p.Endpoint(), Role: healthz.Writes, WritesFor: []string{"secrets"}, State: healthz.Ready, Since: began,
		KeyIDHash: envelope.HashKeyID("1"), DEKCreated: began, DEKWrites: 3, DEKHash: hashed.Name(object.Source.Tail()), LastHealthy: now, WritesUntil: now.Add(3 * time.Minute), WritesLeft: 180,
		CachedDEKs: 1, Reads: 3, LastRead: now, LastWrite: now,
	}, told)
}

func TestStatusTellsHowAFileFails(t *testing.T) {
	p := faultplugin.Start(t)
	path, put := place(t, configuration(p, "secrets"))
	o := optionsFor(path)
	clock := fakeTime(o)
	e := start(t, o)
	clock.Step(time.Second)
	follow(t, e)
	eventually(t, func() bool { return e.Status().Reload != nil })
	loaded := *getStatus(t, e).Reload
	require.Equal(t, healthz.Reload{LoadedAt: clock.Now(), Outcome: "ok"}, loaded)

	put("kind: [")
	stepUntil(t, clock, func() bool { return reloadOf(e).Outcome == "failed" })
	failed := *getStatus(t, e).Reload
	require.Equal(t, loaded.LoadedAt, failed.LoadedAt)
	require.Equal(t, reload.Hash([]byte("kind: [")), failed.FailedHash)
	require.True(t, failed.FailedSince.After(loaded.LoadedAt))
	require.False(t, failed.Retrying)
	require.Contains(t, failed.Error, path)
	require.Empty(t, failed.NoEvents)
}

func TestAReloadIsLoggedByWhatItChanges(t *testing.T) {
	p := faultplugin.Start(t)
	path, put := place(t, configuration(p, "secrets"))
	e, log := logged(t, optionsFor(path))
	follow(t, e)
	handle := e.ResourceTransformers().TransformerForResource(secrets)
	for range 3 {
		_, _, err := handle.TransformFromStorage(t.Context(), []byte(stored(t, e, secrets)), at)
		require.NoError(t, err)
	}
	_, _, err := handle.TransformFromStorage(t.Context(), []byte("plain"), at)
	require.NoError(t, err)

	put(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{"resources":["secrets"],
	 "providers":[{"aescbc":{"keys":[{"name":"k1","secret":"MDEyMzQ1Njc4OWFiY2RlZg=="}]}}]}]}`)
	require.Eventually(t, func() bool {
		return strings.Contains(log(), "lastReadAgo") && strings.Count(log(), "Removed from") == 2
	}, 30*time.Second, time.Millisecond)
	out := log()
	require.Contains(t, out, `secrets: written with aescbc key \"k1\", no longer with kms v2 \"test\"`)
	require.Contains(t, out, `no longer read with kms v2 \"test\", identity`)
	require.Contains(t, out, `removed="kms test" reads=3`)
	require.Contains(t, out, `removed="identity" reads=1`)
	require.Contains(t, out, `field="resources[0].providers[0]" kind="not_bound_to_key"`)
	require.NotContains(t, out, "MDEyMzQ1Njc4OWFiY2RlZg")
	require.Equal(t, healthz.Loaded, getStatus(t, e).Reload.Outcome)

	put("nothing")
	require.Eventually(t, func() bool { return getStatus(t, e).Reload.Outcome == "failed" }, 30*time.Second, time.Millisecond)
	require.Contains(t, getStatus(t, e).Reload.Error, path)
}
