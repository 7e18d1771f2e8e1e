package etcd_test

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
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/audit/etcd"
	"github.com/kube-atrest/atrest/internal/etcdtest"
)

// authority signs certificates for the loopback interface.
type authority struct {
	t           *testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string
}

func newAuthority(t *testing.T) authority {
	a := authority{t: t}
	var der []byte
	der, a.key = a.sign("CA", nil)
	a.certificate, _ = x509.ParseCertificate(der)
	a.file = a.write("CERTIFICATE", der)
	return a
}

// sign makes a certificate of the authority, or one that signs itself.
func (a authority) sign(name string, parent *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
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

func (a authority) write(kind string, der []byte) string {
	path := filepath.Join(a.t.TempDir(), strings.ReplaceAll(kind, " ", "-")+".pem")
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// pair are a certificate and its key, as files and as they are used.
func (a authority) pair(name string) (cert, key string, both tls.Certificate) {
	der, private := a.sign(name, a.certificate)
	encoded, err := x509.MarshalECPrivateKey(private)
	require.NoError(a.t, err)
	return a.write("CERTIFICATE", der), a.write("EC PRIVATE KEY", encoded), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

func startTLS(t *testing.T, a authority) *etcdtest.Server {
	_, _, pair := a.pair("etcd")
	clients := x509.NewCertPool()
	clients.AddCert(a.certificate)
	server := etcdtest.StartTLS(t, &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert})
	server.Store("/a", []byte("value"))
	return server
}

func TestTLS(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	server := startTLS(t, a)
	cert, key, _ := a.pair("client")
	strangeCert, strangeKey, _ := other.pair("client")
	host := strings.TrimPrefix(server.Endpoint(), "https://")
	for name, c := range map[string]struct {
		options etcd.Options
		fails   string
	}{
		"as it should be":                 {etcd.Options{Endpoints: []string{server.Endpoint()}, CAFile: a.file, CertFile: cert, KeyFile: key}, ""},
		"without a scheme":                {etcd.Options{Endpoints: []string{host}, CAFile: a.file, CertFile: cert, KeyFile: key}, ""},
		"without a client certificate":    {etcd.Options{Endpoints: []string{server.Endpoint()}, CAFile: a.file}, "certificate and key"},
		"with a strange certificate":      {etcd.Options{Endpoints: []string{server.Endpoint()}, CAFile: a.file, CertFile: strangeCert, KeyFile: strangeKey}, "certificate and key"},
		"a server of another CA":          {etcd.Options{Endpoints: []string{server.Endpoint()}, CAFile: other.file, CertFile: cert, KeyFile: key}, "x509: "},
		"a server of no CA of the system": {etcd.Options{Endpoints: []string{server.Endpoint()}, CertFile: cert, KeyFile: key}, "x509: "},
		"without TLS":                     {etcd.Options{Endpoints: []string{"http://" + host}}, "http or https"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(0, 0))
			c.options.Clock = clock
			s := dial(t, c.options)
			done := make(chan error)
			go func() {
				_, err := s.Get(t.Context(), "/a")
				done <- err
			}()
			if c.fails == "" {
				require.NoError(t, <-done)
				return
			}
			for range 2 {
				require.Eventually(t, clock.HasWaiters, 20*time.Second, time.Millisecond)
				clock.Step(time.Second)
			}
			err := <-done
			require.ErrorContains(t, err, c.fails)
			require.ErrorContains(t, err, "check the endpoint")
		})
	}
}

func TestDialRefusesWhatCannotBe(t *testing.T) {
	a := newAuthority(t)
	cert, key, _ := a.pair("client")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for name, c := range map[string]struct {
		options etcd.Options
		want    string
	}{
		"no port":             {etcd.Options{Endpoints: []string{"https://localhost"}}, "write https://host:2379"},
		"a path":              {etcd.Options{Endpoints: []string{"https://localhost:2379/v3"}}, "write https://host:2379"},
		"a user":              {etcd.Options{Endpoints: []string{"https://me@localhost:2379"}}, "write https://host:2379"},
		"another scheme":      {etcd.Options{Endpoints: []string{"ftp://localhost:2379"}}, "write https://host:2379"},
		"no socket":           {etcd.Options{Endpoints: []string{"unix://"}}, "write https://host:2379"},
		"an empty one":        {etcd.Options{Endpoints: []string{"127.0.0.1:2379", ""}}, "write https://host:2379"},
		"no CA file":          {etcd.Options{CAFile: filepath.Join(t.TempDir(), "gone")}, "gone"},
		"an empty CA file":    {etcd.Options{CAFile: empty}, "no certificate in PEM"},
		"a key alone":         {etcd.Options{KeyFile: key}, "or neither"},
		"a certificate alone": {etcd.Options{CertFile: cert}, "or neither"},
		"key for certificate": {etcd.Options{CertFile: key, KeyFile: cert}, "client certificate for etcd"},
	} {
		_, err := etcd.Dial(c.options)
		require.ErrorContains(t, err, c.want, name)
	}
}
