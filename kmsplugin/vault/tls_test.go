package vault

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/bubble"
)

// certificateUntil is one of vault.test that is valid until a year.
func certificateUntil(t *testing.T, year int) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC),
		DNSNames: []string{"vault.test"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// withTLS answers one question, with a certificate.
func withTLS(own tls.Certificate) func(net.Conn) {
	return func(conn net.Conn) {
		secured := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{own}})
		if _, err := http.ReadRequest(bufio.NewReader(secured)); err == nil {
			_, _ = io.WriteString(secured, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	}
}

// A node may take connections and hang before TLS is agreed on, as its kernel takes them for it, or have
// a certificate that ran out, which each has of its own.
func TestANodeWithoutTLSHidesNoneThatHasIt(t *testing.T) {
	good, old := certificateUntil(t, 2100), certificateUntil(t, 1999) // in a bubble it is 2000
	ca := filepath.Join(t.TempDir(), "ca.crt")
	var roots []byte
	for _, c := range []tls.Certificate{good, old} {
		roots = append(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})...)
	}
	require.NoError(t, os.WriteFile(ca, roots, 0o600))

	for name, does := range map[string]func(net.Conn){
		"it hangs":    func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		"it hangs up": func(net.Conn) {},
		"it speaks no TLS": func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1<<12))
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
		},
		"it has run out": withTLS(old),
	} {
		bubble.Test(t, func(t *testing.T) {
			nodes := map[string]func(net.Conn){"0:8200": does, "1:8200": withTLS(good)}
			d := (&hosts{nodes: make([]string, len(nodes))}).dialer()
			d.connect = func(_ context.Context, _, address string) (net.Conn, error) {
				here, there := net.Pipe()
				go func() {
					defer there.Close()
					nodes[address](there)
				}()
				return to{here, node(address)}, nil
			}
			config := Config{Address: "https://vault.test:8200", TLS: TLS{CAFile: ca}}
			require.ErrorContains(t, askOne(t.Context(), d, config, false), "TLS with 0:8200: ", name)
			require.NoError(t, askOne(t.Context(), d, config, false), name)
			nodes["0:8200"], nodes["1:8200"] = nodes["1:8200"], does
			require.NoError(t, askOne(t.Context(), d, config, true), "%s: what may be is asked again, of the other one", name)
		})
	}
}

// Connections that are left are not waited for either, and nothing is known of their nodes.
func TestANodeThatNobodyWaitsForIsNotAvoided(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := (&hosts{nodes: make([]string, 1)}).dialer()
	d.agree = time.Hour
	d.connect = func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			_, _ = there.Read(make([]byte, 1<<12))
			cancel()
			_, _ = io.Copy(io.Discard, there)
		}()
		return to{here, node("0:8200")}, nil
	}
	_, err := d.dialTLS(ctx, "tcp", "vault.test:8200", &tls.Config{})
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, d.avoided.Load())
}
