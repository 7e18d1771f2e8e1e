// Package local prepares a kube-apiserver that serves this machine only: its credentials,
// its flags, the kubeconfig of its administrator, and the wait until it is ready.
//
// It starts nothing: the flags are for a process of its own or for a server inside this
// one.
package local

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
)

const loopback = "127.0.0.1"

// Cluster is a folder with everything one kube-apiserver and its administrator need. It
// is only read once [Prepare] has made it.
type Cluster struct {
	dir     string
	address string
	token   string
	cert    []byte
}

// Prepare writes fresh credentials for a server on address ("127.0.0.1:6443") into dir,
// which must exist. Those of an earlier run are replaced: they are never worth keeping,
// unlike what etcd holds.
func Prepare(dir, address string) (*Cluster, error) {
	c := &Cluster{dir: dir, address: address, token: rand.Text()}
	for _, write := range []func() error{c.writeServingCert, c.writeServiceAccountKey, c.writeToken, c.writeKubeconfig} {
		if err := write(); err != nil {
			return nil, fmt.Errorf("prepare a kube-apiserver in %q: %w", dir, err)
		}
	}
	return c, nil
}

// Kubeconfig is the file that makes its reader the administrator.
func (c *Cluster) Kubeconfig() string { return c.file("kubeconfig") }

// Config is the administrator's client configuration. Requests are not throttled.
func (c *Cluster) Config() *rest.Config {
	return &rest.Config{
		Host:            "https://" + c.address,
		BearerToken:     c.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.cert},
		QPS:             -1,
	}
}

// Flags are kube-apiserver's flags for this folder and the etcd at endpoint. More may be
// added behind them.
func (c *Cluster) Flags(endpoint string) ([]string, error) {
	_, port, err := net.SplitHostPort(c.address)
	if err != nil {
		return nil, fmt.Errorf("address of kube-apiserver: %w", err)
	}
	return []string{
		"--etcd-servers=" + endpoint,
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		"--secure-port=" + port,
		"--tls-cert-file=" + c.file("serving.crt"),
		"--tls-private-key-file=" + c.file("serving.key"),
		"--token-auth-file=" + c.file("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file("service-account.key"),
		"--service-account-signing-key-file=" + c.file("service-account.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		// An endpoint on the loopback address is not valid, and no pod asks for one here.
		"--endpoint-reconciler-type=none",
	}, nil
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) writeServingCert() error {
	cert, key, err := certutil.GenerateSelfSignedCertKey(loopback, nil, []string{"localhost"})
	if err != nil {
		return err
	}
	c.cert = cert
	if err := os.WriteFile(c.file("serving.crt"), cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.file("serving.key"), key, 0o600)
}

func (c *Cluster) writeServiceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return os.WriteFile(c.file("service-account.key"), block, 0o600)
}

// writeToken makes the bearer of the token a member of the group that RBAC lets do
// everything.
func (c *Cluster) writeToken() error {
	line := fmt.Sprintf("%s,admin,admin,system:masters\n", c.token)
	return os.WriteFile(c.file("tokens.csv"), []byte(line), 0o600)
}

func (c *Cluster) writeKubeconfig() error {
	const name = "atrest"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + c.address, CertificateAuthorityData: c.cert}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, c.Kubeconfig())
}
