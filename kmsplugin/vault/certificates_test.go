package vault_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

// serverUntil is something at an https address whose own certificate is valid until then, and the file
// that has its CA.
func serverUntil(t *testing.T, until time.Time, config *tls.Config) (address, caFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: until.Add(-48 * time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	// With TLS 1.3 a client is refused after its handshake, and may see a connection that was reset.
	config.MaxVersion, config.Certificates = tls.VersionTLS12, []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS, server.Config.ErrorLog = config, log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// openAt opens a session of what is at an address.
func openAt(t *testing.T, address string, files vault.TLS) error {
	t.Helper()
	transit, err := vault.New(vault.Config{
		Address: address, Mount: "transit", Key: "k", TLS: files, Auth: vault.Auth{TokenFile: write(t, "hvs.token")},
	})
	require.NoError(t, err)
	_, err = transit.Open(t.Context())
	require.Error(t, err)
	return err
}

// A Vault, or what is in front of it, may let nobody in without a certificate.
func TestAVaultThatWantsACertificateIsTold(t *testing.T) {
	cert, key := ownCertificate(t)
	known := x509.NewCertPool()
	require.True(t, known.AppendCertsFromPEM([]byte(cert)))
	address, ca := serverUntil(t, time.Now().Add(24*time.Hour), &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known})
	const remedy = "it does not take this plugin's certificate, or wants one: give its files"

	err := openAt(t, address, vault.TLS{CAFile: ca})
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, remedy)

	other, itsKey := ownCertificate(t)
	err = openAt(t, address, vault.TLS{CAFile: ca, CertFile: write(t, other), KeyFile: write(t, itsKey)})
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, remedy)

	err = openAt(t, address, vault.TLS{CAFile: ca, CertFile: write(t, cert), KeyFile: write(t, key)})
	require.NotContains(t, err.Error(), remedy)
	require.ErrorContains(t, err, "404", "it is let in, and is no Vault")
}

func TestACertificateOfVaultThatHasExpiredIsTold(t *testing.T) {
	address, ca := serverUntil(t, time.Now().Add(-time.Hour), &tls.Config{})
	err := openAt(t, address, vault.TLS{CAFile: ca})
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, "its certificate, or this host's clock, has to be set right")
	require.NotContains(t, err.Error(), "give the CA file")
}
