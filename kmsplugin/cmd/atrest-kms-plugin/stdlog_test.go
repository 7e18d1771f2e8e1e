package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// answerTwice answers each request two times, at once.
func answerTwice(listener net.Listener, body string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			from := bufio.NewReader(conn)
			for {
				request, err := http.ReadRequest(from)
				if err != nil {
					return
				}
				_ = request.Body.Close()
				answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				fmt.Fprint(conn, answer, answer)
			}
		}()
	}
}

func TestWhatAServerSendsUnaskedIsNotLogged(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go answerTwice(listener, `{"data":{"ttl":0,"plaintext":"S0VZIE1BVEVSSUFM"}}`)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("hvs.token"), 0o600))
	p := startProcess(t, "vault", "serve", "--listen", plugintest.Endpoint(t), "--vault-address", "http://"+listener.Addr().String(),
		"--insecure-http", "--vault-key-path", "transit/keys/kube", "--token-file", token)
	p.requireLogged(t, "a library logged something at transport.go:")
	require.NoError(t, p.end(syscall.SIGTERM))
	require.NotContains(t, p.start+p.log.String(), "S0VZ")
}
