// Package vaulttest runs a Vault for as long as a test lasts, and does with it what an
// operator does: keys of Transit, policies, tokens, ways to log in, seal and unseal. It
// is a fake in memory or, where the environment variable ATREST_VAULT names the program of
// kmsplugin/vault/realvault, a real one; a test sees no difference, as all of it goes
// through Vault's own HTTP API, and recorded answers hold the fake to the real one.
// It is for tests alone: everything that fails fails the test.
package vaulttest

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest/internal/fakevault"
)

// Program is the environment variable that names the program of a real Vault.
const Program = "ATREST_VAULT"

// Server is a Vault that is initialised and unsealed, with Transit at transit/. Its methods
// act as root, and end the test if they cannot.
type Server struct {
	// Address is its URL, as in https://127.0.0.1:8200. It stays the same while the Server
	// is down.
	Address string
	// CA is the file with the certificate that its own is held to; empty with http.
	CA string
	// RootToken may do everything.
	RootToken string

	t         testing.TB
	unsealKey string
	issuer    *issuer
	client    *http.Client
	running   running
	faults    *Faults // nil with a real one
	enabled   map[string]bool
	reviewer  *reviewer
}

// running is a Vault that can be taken away for a time.
type running interface {
	down() error
	up() error
}

// Start starts a Vault with TLS. Its certificate is for 127.0.0.1 and vault.test.
func Start(t testing.TB) *Server { return start(t, true) }

// StartHTTP starts one without TLS.
func StartHTTP(t testing.TB) *Server { return start(t, false) }

func start(t testing.TB, secured bool) *Server {
	t.Helper()
	s := &Server{t: t, issuer: newIssuer(t), enabled: map[string]bool{}}
	if secured {
		s.CA = s.issuer.file
	}
	if program := os.Getenv(Program); program != "" {
		s.startReal(program, secured)
	} else {
		s.startFake(secured)
	}
	// Half of what a plugin is given for one call is long for a Vault on the same machine.
	s.client = &http.Client{Timeout: time.Minute, Transport: s.issuer.transport()}
	t.Cleanup(s.client.CloseIdleConnections)
	s.Write("sys/mounts/transit", map[string]any{"type": "transit"})
	return s
}

func (s *Server) startFake(secured bool) {
	v := fakevault.New()
	s.faults = &Faults{vault: v, clear: make(chan struct{})}
	d := newDoor(s.faults)
	if secured {
		d.secured = s.issuer.server(s.t)
	}
	require.NoError(s.t, d.up())
	s.t.Cleanup(func() { d.down() })
	s.Address, s.RootToken, s.unsealKey, s.running = d.url(), v.Token, v.UnsealKey, d
}

// IsReal reports whether it is a real Vault.
func (s *Server) IsReal() bool { return s.faults == nil }

// Faults are what the fake alone can do; with a real Vault the test is skipped.
func (s *Server) Faults() *Faults {
	s.t.Helper()
	if s.faults == nil {
		s.t.Skip("a real Vault does not do wrong when it is told to")
	}
	return s.faults
}

// Down closes its address and all connections; nothing is lost.
func (s *Server) Down() {
	s.t.Helper()
	require.NoError(s.t, s.running.down())
}

// Up opens the address again.
func (s *Server) Up() {
	s.t.Helper()
	require.NoError(s.t, s.running.up())
}

// Seal has it refuse everything until it is unsealed.
func (s *Server) Seal() { s.t.Helper(); s.Write("sys/seal", nil) }

// Unseal is the end of that.
func (s *Server) Unseal() {
	s.t.Helper()
	answer := s.Do(http.MethodPost, "sys/unseal", "", map[string]any{"key": s.unsealKey})
	require.Equal(s.t, http.StatusOK, answer.Status, "%s", answer.Body)
	s.settle()
}

// settle returns when an unsealed Vault answers: it takes a moment to load.
func (s *Server) settle() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.Do(http.MethodGet, "sys/health", "", nil).Status == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
}
