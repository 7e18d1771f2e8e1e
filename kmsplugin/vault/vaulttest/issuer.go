package vaulttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// issuer makes certificates and tokens.
type issuer struct {
	folder, file string
	key          *ecdsa.PrivateKey
	certificate  *x509.Certificate
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	i := &issuer{folder: t.TempDir(), key: key}
	template := certificate("vaulttest")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	i.certificate, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	i.file = i.write(t, "ca.crt", "CERTIFICATE", der)
	return i
}

func certificate(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // rand.Reader does not fail
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// issue makes a certificate and returns the files that have it and its key.
func (i *issuer) issue(t testing.TB, name string, template *x509.Certificate) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, i.certificate, key.Public(), i.key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return i.write(t, name+".crt", "CERTIFICATE", der), i.write(t, name+".key", "PRIVATE KEY", secret)
}

func (i *issuer) serverFiles(t testing.TB) (certFile, keyFile string) {
	template := certificate("vault")
	template.DNSNames, template.IPAddresses = []string{"vault.test"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	return i.issue(t, "server", template)
}

func (i *issuer) server(t testing.TB) *tls.Config {
	certFile, keyFile := i.serverFiles(t)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2", "http/1.1"}}
}

func (i *issuer) client(t testing.TB, name string) (certFile, keyFile string) {
	return i.issue(t, "client-"+name, certificate(name))
}

// transport trusts the issuer.
func (i *issuer) transport() *http.Transport {
	roots := x509.NewCertPool()
	roots.AddCert(i.certificate)
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
}

func (i *issuer) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.certificate.Raw}))
}

func (i *issuer) publicKey(t testing.TB) string {
	der, err := x509.MarshalPKIXPublicKey(i.key.Public())
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func (i *issuer) write(t testing.TB, name, kind string, der []byte) string {
	path := filepath.Join(i.folder, name)
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// jwt signs claims with ES256.
func (i *issuer) jwt(t testing.TB, subject, audience string, expires time.Time, more map[string]any) string {
	t.Helper()
	part := func(value any) string {
		text, err := json.Marshal(value)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	claims := map[string]any{"sub": subject, "aud": []string{audience}, "iat": time.Now().Add(-time.Minute).Unix(), "exp": expires.Unix(), "iss": "vaulttest"}
	maps.Copy(claims, more)
	signed := part(map[string]any{"alg": "ES256", "typ": "JWT"}) + "." + part(claims)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	require.NoError(t, err)
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}
