package atrest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

// others answers for all that is not about encryption.
var others = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusTeapot)
	_, _ = io.WriteString(w, r.Method)
})

func request(e *atrest.Encryption, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeStatus(others).ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// askStatus has the plugins asked.
func askStatus(t *testing.T, e *atrest.Encryption) (s healthz.Status) {
	t.Helper()
	w := request(e, http.MethodPost, healthz.AskPath)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s))
	return s
}

func keyIDHashes(s healthz.Status) []string {
	var all []string
	for _, p := range s.Providers {
		all = append(all, p.KeyIDHash)
	}
	return all
}

func TestToHaveThePluginsAskedIsAPost(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	calls := p.Calls()
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS"} {
		w := request(e, method, healthz.AskPath)
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, method)
		require.Equal(t, "POST", w.Header().Get("Allow"))
		require.Equal(t, "post to /debug/encryption/ask to have the KMS plugins asked, or get /debug/encryption\n", w.Body.String())
	}
	require.Equal(t, calls, p.Calls(), "nobody was asked")
}

func TestOtherPathsAreLeftAlone(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	e := start(t, optionsFor(path))
	for _, path := range []string{"/", "/debug", "/debug/encryptions", "/debug/encryption/", "/debug/encryption/asks", "/debug/encryption/ask/", "/apis/debug/encryption/ask"} {
		for _, method := range []string{"GET", "POST"} {
			w := request(e, method, path)
			require.Equal(t, http.StatusTeapot, w.Code, path)
			require.Equal(t, method, w.Body.String())
		}
	}
}

// No poll is due yet that would bring it.
func TestWhatAPluginSaysNowIsKnownInTheAnswer(t *testing.T) {
	writer, reader := faultplugin.Start(t), faultplugin.Start(t)
	path, _ := place(t, fileOf(rule("secrets", kms("writer", writer.Endpoint()), kms("reader", reader.Endpoint()))))
	o := optionsFor(path)
	o.AutomaticReload = false
	clock := fakeTime(o)
	e := start(t, o)
	require.Equal(t, []string{envelope.HashKeyID("1"), envelope.HashKeyID("1")}, keyIDHashes(askStatus(t, e)))

	writer.Heal("2")
	reader.Heal("3")
	clock.Step(time.Second)
	require.Equal(t, []string{envelope.HashKeyID("1"), envelope.HashKeyID("1")}, keyIDHashes(getStatus(t, e)), "nobody was asked")
	require.Equal(t, []string{envelope.HashKeyID("2"), envelope.HashKeyID("3")}, keyIDHashes(askStatus(t, e)))
	require.Contains(t, stored(t, e, secrets), "k8s:enc:kms:v2:writer:")
	require.EqualValues(t, 1, getStatus(t, e).Providers[0].DEKWrites, "it writes under the new key_id already")

	reader.Set(func(b *faultplugin.Behaviour) { b.Healthz = "the KMS is away" })
	clock.Step(time.Second)
	s := askStatus(t, e)
	require.Equal(t, healthz.Ready, s.Providers[0].State)
	require.Equal(t, []any{healthz.Degraded, "unhealthy"}, []any{s.Providers[1].State, s.Providers[1].Problem})
}

func TestHoweverOftenOneAsksAPluginIsNotAskedThatOften(t *testing.T) {
	p := faultplugin.Start(t)
	path, _ := place(t, configuration(p, "secrets"))
	o := optionsFor(path)
	o.AutomaticReload = false
	clock := fakeTime(o)
	e := start(t, o)
	for range 50 {
		askStatus(t, e)
	}
	require.LessOrEqual(t, p.Calls().Status, 5)
	asked := p.Calls().Status
	clock.Step(time.Second)
	for range 50 {
		askStatus(t, e)
	}
	require.Equal(t, asked+1, p.Calls().Status)
}

func TestAPluginThatHangsIsWaitedForTenSecondsAtMost(t *testing.T) {
	hung, well := faultplugin.Start(t), faultplugin.Start(t)
	path, _ := place(t, fileOf(rule("secrets", kms("hung", hung.Endpoint(), patient), kms("well", well.Endpoint()))))
	o := optionsFor(path)
	o.AutomaticReload = false
	clock := fakeTime(o)
	e := start(t, o)
	hung.Set(hang)
	well.Heal("2")
	clock.Step(time.Second)
	calls, answered := hung.Calls().Status, make(chan []string)
	go func() { answered <- keyIDHashes(askStatus(t, e)) }()
	eventually(t, func() bool {
		return hung.Calls().Status > calls && e.Status().Providers[1].KeyIDHash == envelope.HashKeyID("2")
	})
	clock.Step(10 * time.Second)
	require.Equal(t, []string{envelope.HashKeyID("1"), envelope.HashKeyID("2")}, <-answered, "of what hangs there is what was known")
}

func TestWhoGivesUpIsNotWaitedWith(t *testing.T) {
	p := faultplugin.New(t)
	served := serveCounted(t, kmsapi.KeyManagementServiceServer(p))
	path, _ := place(t, fileOf(rule("secrets", kms("test", served.endpoint, patient))))
	o := optionsFor(path)
	o.AutomaticReload = false
	clock := fakeTime(o)
	e := start(t, o)
	p.Set(hang)
	clock.Step(time.Second)
	api := httptest.NewServer(e.ServeStatus(others))
	defer api.Close() // it waits for all who are answered
	client := &http.Client{Timeout: 50 * time.Millisecond}
	_, err := client.Post(api.URL+healthz.AskPath, "", nil)
	require.True(t, err != nil && strings.Contains(err.Error(), "Timeout"), "%v", err)
}
