package nodes

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// role is what plugins log in as, and roleSecret and caBundle are what a bundle has of it.
const (
	role       = "plugin"
	roleSecret = "vault-approle"
	caBundle   = "vault-ca"
)

// vault is a Vault behind a door with a certificate that can be replaced, and what plugins are given
// of it: that may be changed, and goes into the next bundle.
type vault struct {
	*vaulttest.Server
	t                *testing.T
	door             *door
	roleID, secretID string
	ca               []byte
	keys             map[string]bool
}

func newVault(t *testing.T) *vault {
	t.Helper()
	v := &vault{Server: vaulttest.Start(t), t: t, keys: map[string]bool{}}
	if !v.IsReal() {
		t.Logf("%s names no program of a real Vault: a fake stands in for it", vaulttest.Program)
	}
	v.door = newDoor(t, v.Server)
	next, ca := v.door.issue()
	v.door.show(next)
	v.ca = ca
	v.roleID = v.AppRole(vaulttest.Role{Name: role, Policies: []string{role}, TTL: time.Hour})
	v.secretID = v.SecretID(role)
	return v
}

func (v *vault) plugin(keyID bundle.KeyID, program bundle.Program) bundle.DraftPlugin {
	v.t.Helper()
	return bundle.DraftPlugin{KeyID: keyID,
		Settings: settings(program, fmt.Sprintf("vault: {address: %q, keyPath: %q, poll: 200ms, tls: {caBundle: %s}, auth: {appRole: {secret: %s}}}\n",
			v.door.URL, "transit/keys/"+v.key(keyID), caBundle, roleSecret)),
		Parts: map[bundle.Part][]byte{
			{Source: bundle.ConfigMap, Name: caBundle, Key: "ca-bundle.crt"}: v.ca,
			{Source: bundle.Secret, Name: roleSecret, Key: "role-id"}:        []byte(v.roleID),
			secretIDPart: []byte(v.secretID),
		}}
}

// secretIDPart is the credential that is replaced.
var secretIDPart = bundle.Part{Source: bundle.Secret, Name: roleSecret, Key: "secret-id"}

// key is the key of a keyID, which plugins may use from now on.
func (v *vault) key(keyID bundle.KeyID) string {
	v.t.Helper()
	name := "kube-" + keyID.String()
	if v.keys[name] {
		return name
	}
	v.CreateKey(name, "")
	v.keys[name] = true
	var rules []string
	for key := range v.keys {
		policy, err := exec.Command(harness.KMSPlugin(v.t), "vault", "policy", "--vault-key-path", "transit/keys/"+key).Output()
		require.NoError(v.t, err)
		rules = append(rules, string(policy))
	}
	v.Policy(role, strings.Join(rules, "\n"))
	return name
}

// newCredential makes another secret-id, and returns what has the former one, and every token that
// was had for it, be of no use.
func (v *vault) newCredential() (revoke func()) {
	v.t.Helper()
	former := v.secretID
	v.secretID = v.SecretID(role)
	return func() {
		v.t.Helper()
		v.DestroySecretID(role, former)
		v.Do(http.MethodPut, "sys/leases/revoke-prefix/auth/approle/login", v.RootToken, nil)
	}
}

// door is a way to Vault by TLS.
type door struct {
	*httptest.Server
	t                *testing.T
	certificate      atomic.Pointer[tls.Certificate]
	answered, logins atomic.Int64 // requests with success
}

func newDoor(t *testing.T, v *vaulttest.Server) *door {
	t.Helper()
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(v.CA)
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(pem))
	to, err := url.Parse(v.Address)
	require.NoError(t, err)
	d := &door{t: t}
	silent := log.New(io.Discard, "", 0)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	proxy.ErrorLog = silent
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.StatusCode == http.StatusOK {
			d.answered.Add(1)
			if strings.HasSuffix(r.Request.URL.Path, "/login") {
				d.logins.Add(1)
			}
		}
		return nil
	}
	d.Server = httptest.NewUnstartedServer(proxy)
	d.Config.ErrorLog = silent
	d.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*d.certificate.Load()}, NextProtos: []string{"http/1.1"}}, nil
	}}
	d.StartTLS()
	t.Cleanup(d.Close)
	return d
}

// issue makes a certificate, of a CA of its own.
func (d *door) issue() (next *tls.Certificate, ca []byte) {
	d.t.Helper()
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	require.NoError(d.t, err)
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(d.t, err)
	return &pair, cert
}

// show has the door show a certificate. Connections that there are are cut.
func (d *door) show(next *tls.Certificate) {
	d.certificate.Store(next)
	d.CloseClientConnections()
}
