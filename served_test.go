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
)

// What is looked at, and how often, is with package served.
func TestResourcesThatTheServerDoesNotHaveAreWarnedOf(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, map[string]string{
			"/readyz": "ok", "/api": `{"kind":"APIVersions","versions":["v1"]}`, "/apis": `{"kind":"APIGroupList","apiVersion":"v1"}`,
			"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"secrets"}]}`,
		}[r.URL.Path])
	}))
	t.Cleanup(api.Close)
	path, put := place(t, fileOf(rule("secrets", aesgcm)))
	e, log := logged(t, optionsFor(path))
	hook := server.PostStartHookContext{Context: t.Context(), LoopbackClientConfig: &rest.Config{Host: api.URL}}
	require.NoError(t, e.PostStartHook(hook))
	unserved := func() float64 { return gauge(t, "atrest_encryption_config_unserved_resources") }
	eventually(t, func() bool { return unserved() == 0 })

	put(fileOf(rule("secret", aesgcm)))
	eventually(t, func() bool { return unserved() == 1 })
	require.Equal(t, 1, strings.Count(log(), `kind="unserved_resource"`))
	require.Contains(t, log(), `is \"secrets\" meant?`)
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
