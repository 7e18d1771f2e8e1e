package vaulttest

import (
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// With is the same Vault to a client that has a certificate.
func (s *Server) With(certFile, keyFile string) *Server {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(s.t, err)
	other, transport := *s, s.issuer.transport()
	transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	other.client = &http.Client{Transport: transport}
	s.t.Cleanup(other.client.CloseIdleConnections)
	return &other
}

// Client trusts its certificate.
func (s *Server) Client() *http.Client { return s.client }

// For is the same Vault to another test.
func (s *Server) For(t testing.TB) *Server {
	other := *s
	other.t = t
	return &other
}
