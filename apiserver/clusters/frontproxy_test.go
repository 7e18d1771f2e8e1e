package clusters

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// frontProxy makes a CA, and a certificate by which a kube-apiserver shows itself to the
// aggregated ones. What it returns are the flags for it.
func frontProxy(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	ca, caKey := newCA(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	client, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "front-proxy-client"},
		NotBefore: ca.NotBefore, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, key.Public(), caKey)
	require.NoError(t, err)
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	require.NoError(t, err)
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, certutil.WriteCert(at("client.crt"), pemOf(t, client)))
	require.NoError(t, certutil.WriteCert(at("ca.crt"), pemOf(t, ca.Raw)))
	require.NoError(t, keyutil.WriteKey(at("client.key"), text))
	return []string{
		"--client-ca-file=" + at("ca.crt"), "--requestheader-client-ca-file=" + at("ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + at("client.crt"), "--proxy-client-key-file=" + at("client.key"),
	}
}

func newCA(t *testing.T) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "front-proxy-ca"}, key)
	require.NoError(t, err)
	return ca, key
}

func pemOf(t *testing.T, der []byte) []byte {
	t.Helper()
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	text, err := certutil.EncodeCertificates(cert)
	require.NoError(t, err)
	return text
}
