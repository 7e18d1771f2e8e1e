package vault

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// A Vault that is sealed for long may be asked often, and each answer has connections left.
func TestConnectionsThatAreLeftAreClosed(t *testing.T) {
	var open atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"errors":["Vault is sealed"]}`)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.Start()
	defer server.Close()
	c, err := newClient(Config{Address: server.URL}, newDialer())
	require.NoError(t, err)
	for range 10 {
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				assert.ErrorIs(t, c.ask(t.Context(), request{method: http.MethodGet, path: "k", safe: true}, nil), kmsplugin.ErrUnavailable)
			})
		}
		all.Wait()
	}
	require.Eventually(t, func() bool { return open.Load() == 0 }, time.Minute, time.Millisecond)
}
