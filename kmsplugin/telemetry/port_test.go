package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// fixed is a Health that does not change.
type fixed struct{ status, check error }

func (f fixed) Status(context.Context) (string, error) { return "key", f.status }
func (f fixed) Check(context.Context) error            { return f.check }

// serve serves at an address, and returns the port and what ends it.
func serve(t *testing.T, address string, health Health) (*Port, func() error) {
	t.Helper()
	port, err := Listen(t.Context(), address)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- port.Serve(ctx, NewMetrics("").Handler(health)) }()
	t.Cleanup(cancel)
	return port, func() error { cancel(); return <-ended }
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	answer, err := client.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

func TestWhatIsNotWellIsToldByItsClassAlone(t *testing.T) {
	secret := fmt.Errorf("%w: https://vault.internal:8200/transit", kmsplugin.ErrDenied)
	for path, health := range map[string]fixed{"/readyz": {status: secret}, "/healthz": {check: secret}} {
		port, end := serve(t, "127.0.0.1:0", health)
		url := "http://" + port.Address()
		for _, other := range []string{"/livez", "/readyz", "/healthz", "/metrics"} {
			code, body := get(t, http.DefaultClient, url+other)
			if other != path {
				require.Equal(t, 200, code, other)
				continue
			}
			require.Equal(t, 503, code)
			require.Equal(t, "not well, PermissionDenied: see the log of the plugin\n", body)
		}
		require.NoError(t, end())
	}
}

func TestNothingElseIsServed(t *testing.T) {
	port, end := serve(t, "127.0.0.1:0", fixed{})
	for _, path := range []string{"/", "/debug/pprof/", "/debug/pprof/heap", "/metrics/x", "/readyz/"} {
		code, _ := get(t, http.DefaultClient, "http://"+port.Address()+path)
		require.Equal(t, 404, code, path)
	}
	answer, err := http.Post("http://"+port.Address()+"/healthz", "text/plain", strings.NewReader("x"))
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, 405, answer.StatusCode)
	require.NoError(t, end())
	_, err = net.Dial("tcp", port.Address())
	require.Error(t, err, "it is gone")
}

func TestTwoOnOneHostDoNotClash(t *testing.T) {
	one, endOne := serve(t, "127.0.0.1:0", fixed{})
	two, endTwo := serve(t, "127.0.0.1:0", fixed{})
	require.NotEqual(t, one.Address(), two.Address())
	_, err := Listen(t.Context(), one.Address())
	require.ErrorContains(t, err, "choose another port, or 0")
	require.NoError(t, errors.Join(endOne(), endTwo()))
	again, err := Listen(t.Context(), one.Address())
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestAPortMayBeASocket(t *testing.T) {
	endpoint := plugintest.Endpoint(t)
	path := strings.TrimPrefix(endpoint, "unix://")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for range 2 { // it is free again
		port, end := serve(t, endpoint, fixed{})
		require.Equal(t, endpoint, port.Address())
		info, err := os.Lstat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		code, _ := get(t, client, "http://plugin/healthz")
		require.Equal(t, 200, code)
		_, err = Listen(t.Context(), endpoint)
		require.ErrorIs(t, err, kmsplugin.ErrSocketInUse)
		require.NoError(t, end())
		left, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	for _, address := range []string{"", "9090", ":9090", "127.0.0.1:", "127.0.0.1", "http://127.0.0.1:1"} {
		_, err := Listen(t.Context(), address)
		require.ErrorIs(t, err, errAddress, address)
		require.ErrorContains(t, err, "write 127.0.0.1:PORT")
	}
	for address, problem := range map[string]string{
		"unix://x": "write three", "unix:///@x": "abstract", "192.0.2.1:0": "no interface of this host",
	} {
		_, err := Listen(t.Context(), address)
		require.ErrorContains(t, err, problem)
	}
}

func TestAPortThatIsNotServedIsClosed(t *testing.T) {
	port, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, port.Close())
	_, err = net.Dial("tcp", port.Address())
	require.Error(t, err)
}

func TestWhoConnectsAndStaysKeepsNobodyOut(t *testing.T) {
	for what, asks := range map[string]string{"asked once": "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", "half a question": "G", "nothing": ""} {
		port, end := serve(t, "127.0.0.1:0", fixed{})
		for range maxConnections {
			conn, err := net.Dial("tcp", port.Address())
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Write([]byte(asks))
			require.NoError(t, err)
		}
		for range 3 {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: readTimeout / 2}
			code, _ := get(t, client, "http://"+port.Address()+"/livez")
			require.Equal(t, 200, code, what)
		}
		require.NoError(t, end())
	}
}

func TestThereAreNoMoreConnectionsThanMayBe(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &newest{Listener: listener, most: 2}
	defer n.Close()
	var clients, accepted []net.Conn
	for range 4 {
		client, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		defer client.Close()
		conn, err := n.Accept()
		require.NoError(t, err)
		clients, accepted = append(clients, client), append(accepted, conn)
		require.LessOrEqual(t, len(n.open), 2)
	}
	for _, client := range clients[:2] {
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "the oldest are closed")
	}
	for _, conn := range accepted {
		_ = conn.Close()
	}
	require.Empty(t, n.open)
}
