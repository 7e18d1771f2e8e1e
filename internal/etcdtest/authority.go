package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates for the loopback interface.
type Authority struct {
	// File is its own certificate, in PEM.
	File string

	t           testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes one, whose files are there until the test ends.
func NewAuthority(t testing.TB) *Authority {
	a := &Authority{t: t}
	der, key := a.sign("CA", nil)
	a.key, a.File = key, a.write("CERTIFICATE", der)
	var err error
	a.certificate, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return a
}

// Start serves to those who show a certificate of the authority until the test ends.
func (a *Authority) Start() *Server {
	_, _, pair := a.Pair("etcd")
	clients := x509.NewCertPool()
	clients.AddCert(a.certificate)
	return StartTLS(a.t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert})
}

// Pair are a certificate and its key, as files in PEM and as they are used.
func (a *Authority) Pair(name string) (cert, key string, both tls.Certificate) {
	der, private := a.sign(name, a.certificate)
	encoded, err := x509.MarshalECPrivateKey(private)
	require.NoError(a.t, err)
	return a.write("CERTIFICATE", der), a.write("EC PRIVATE KEY", encoded), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// sign makes a certificate of the authority, or one that signs itself.
func (a *Authority) sign(name string, parent *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: parent == nil, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	return der, key
}

func (a *Authority) write(kind string, der []byte) string {
	path := filepath.Join(a.t.TempDir(), strings.ReplaceAll(kind, " ", "-")+".pem")
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}
