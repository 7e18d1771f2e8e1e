package vaulttest

import (
	"crypto/tls"
	"net/http"

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
