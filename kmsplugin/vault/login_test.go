package vault_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
)

// role is one with the policy that is exactly enough.
var role = vaulttest.Role{Name: "plugin", Policies: []string{"plugin"}, TTL: time.Hour}

// logins are all of them, each with a credential that is good, a way to put another in its place,
// and one to have nobody log in with the first any more. Those with a file of a secret have it at
// path.
var logins = map[string]func(t *testing.T, p *place) (path string, renew, revoke func()){
	"token": func(t *testing.T, p *place) (string, func(), func()) {
		token := p.Token(time.Hour, "plugin")
		p.config.Auth = vault.Auth{TokenFile: write(t, token)}
		path := p.config.Auth.TokenFile
		return path, func() { rewrite(t, path, p.Token(time.Hour, "plugin")) }, func() { p.Revoke(token) }
	},
	"AppRole": func(t *testing.T, p *place) (string, func(), func()) {
		a := &vault.AppRole{RoleID: p.AppRole(role)}
		secretID := p.SecretID("plugin")
		a.SecretIDFile = write(t, secretID)
		p.config.Auth = vault.Auth{AppRole: a}
		return a.SecretIDFile, func() { rewrite(t, a.SecretIDFile, p.SecretID("plugin")) }, func() { p.DestroySecretID("plugin", secretID) }
	},
	"AppRole, wrapped": func(t *testing.T, p *place) (string, func(), func()) {
		roleID := p.AppRole(role)
		a := &vault.AppRole{RoleIDFile: write(t, roleID), SecretIDFile: write(t, p.WrappedSecretID("plugin", time.Hour)), Wrapped: true}
		p.config.Auth = vault.Auth{AppRole: a}
		renew := func() {
			p.AppRole(role)
			p.Write("auth/approle/role/plugin/role-id", map[string]any{"role_id": roleID})
			rewrite(t, a.SecretIDFile, p.WrappedSecretID("plugin", time.Hour))
		}
		// The secret-id that was in it is the plugin's alone, and goes with the role.
		return a.SecretIDFile, renew, func() { p.Do(http.MethodDelete, "auth/approle/role/plugin", p.RootToken, nil) }
	},
	"Kubernetes": func(t *testing.T, p *place) (string, func(), func()) {
		p.KubernetesRole(role, "kube-system:plugin")
		k := &vault.Kubernetes{Role: "plugin", TokenFile: write(t, p.ServiceAccountToken("kube-system:plugin"))}
		p.config.Auth = vault.Auth{Kubernetes: k}
		renew := func() { rewrite(t, k.TokenFile, p.ServiceAccountToken("kube-system:plugin")) }
		return k.TokenFile, renew, func() { p.DeleteServiceAccount("kube-system:plugin") }
	},
	"JWT": func(t *testing.T, p *place) (string, func(), func()) {
		p.JWTRole(role, "spiffe://plugin")
		j := &vault.JWT{Role: "plugin", TokenFile: write(t, p.JWT("spiffe://plugin"))}
		p.config.Auth = vault.Auth{JWT: j}
		return j.TokenFile, func() { rewrite(t, j.TokenFile, p.JWT("spiffe://moved")) }, func() { p.JWTRole(role, "spiffe://moved") }
	},
	"certificate": func(t *testing.T, p *place) (string, func(), func()) {
		p.CertRole(role)
		p.config.TLS.CertFile, p.config.TLS.KeyFile = p.ClientCertificate("plugin")
		p.config.Auth = vault.Auth{Cert: &vault.Cert{Name: "plugin"}}
		renew := func() {
			cert, key := ownCertificate(t)
			p.Write("auth/cert/certs/plugin", map[string]any{"certificate": cert, "token_policies": role.Policies, "token_ttl": "1h"})
			rewrite(t, p.config.TLS.KeyFile, key) // which goes with no certificate that is there, for a moment
			rewrite(t, p.config.TLS.CertFile, cert)
		}
		return "", renew, func() { p.Do(http.MethodDelete, "auth/cert/certs/plugin", p.RootToken, nil) }
	},
}

func TestEachLoginGivesAToken(t *testing.T) {
	for name, login := range logins {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			login(t, p)
			transit := p.transit(t)
			requireWorks(t, open(t, transit))
			requireWorks(t, open(t, transit)) // another one, with what is known
		})
	}
}

// ownCertificate is a certificate that nobody has issued but its own key, both in PEM.
func ownCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "plugin"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, own.Public(), own)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	require.NoError(t, err)
	inPEM := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return inPEM("CERTIFICATE", der), inPEM("PRIVATE KEY", secret)
}

// requireServes waits until a keeper is well.
func requireServes(t *testing.T, k *kmsplugin.Keeper) {
	t.Helper()
	require.Eventually(t, func() bool {
		sealed, err := k.Encrypt(t.Context(), "", dek)
		if err != nil {
			return false
		}
		_, err = k.Decrypt(t.Context(), "", sealed)
		return err == nil
	}, time.Minute, 5*time.Millisecond)
}

func keep(t *testing.T, transit *vault.Transit) *kmsplugin.Keeper {
	t.Helper()
	config := patient(transit.Config())
	config.Poll = 20 * time.Millisecond
	return plugintest.Keep(t, transit, config)
}

func TestANewCredentialIsTakenWithoutARestart(t *testing.T) {
	for name, login := range logins {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			_, renew, revoke := login(t, p)
			k := keep(t, p.transit(t))
			requireServes(t, k)
			keyID, err := k.Status(t.Context())
			require.NoError(t, err)

			// The old one is no good, and the token of it neither.
			revoke()
			p.revokeAll()
			require.Eventually(t, func() bool { _, err := k.Status(t.Context()); return err != nil }, time.Minute, time.Millisecond)
			_, err = k.Status(t.Context())
			require.ErrorIs(t, err, kmsplugin.ErrDenied)
			renew()
			requireServes(t, k)
			after, err := k.Status(t.Context())
			require.NoError(t, err)
			require.Equal(t, keyID, after)
		})
	}
}

// revokeAll ends all tokens of logins.
func (p *place) revokeAll() {
	for _, at := range []string{"approle", "kubernetes", "jwt", "cert"} {
		p.Do(http.MethodPut, "sys/leases/revoke-prefix/auth/"+at, p.RootToken, nil)
	}
}

func TestATokenThatIsRevokedIsFollowedByANewLogin(t *testing.T) {
	for name, login := range logins {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			login(t, p)
			if p.config.Auth.TokenFile != "" {
				t.Skip("there is no other token")
			}
			k := keep(t, p.transit(t))
			requireServes(t, k)
			for range 3 {
				p.revokeAll()
				requireServes(t, k)
			}
		})
	}
}

func TestAWrappedSecretIDThatSomebodyElseUnwrappedIsTold(t *testing.T) {
	p := newPlace(t)
	roleID := p.AppRole(role)
	wrapping := p.WrappedSecretID("plugin", time.Hour)
	p.config.Auth = vault.Auth{AppRole: &vault.AppRole{RoleID: roleID, SecretIDFile: write(t, wrapping), Wrapped: true}}
	require.Equal(t, http.StatusOK, p.Do(http.MethodPost, "sys/wrapping/unwrap", wrapping, nil).Status)
	_, err := p.transit(t).Open(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrDenied)
	require.ErrorContains(t, err, "somebody else has the secret-id")
	require.NotContains(t, err.Error(), wrapping)
}

func TestAWrappingTokenOfAnythingElseIsRefused(t *testing.T) {
	p := newPlace(t)
	a := &vault.AppRole{RoleID: p.AppRole(role), Wrapped: true}
	p.config.Auth = vault.Auth{AppRole: a}
	if p.IsReal() {
		answer := p.Do(http.MethodPost, "sys/wrapping/wrap", p.RootToken, map[string]any{"secret_id": p.SecretID("plugin")}, "X-Vault-Wrap-TTL", "1h")
		a.SecretIDFile = write(t, answer.JSON["wrap_info"].(map[string]any)["token"].(string))
	} else {
		a.SecretIDFile = write(t, p.WrappedSecretID("plugin", time.Hour))
		p.Faults().Rewrite("sys/wrapping/lookup", func(status int, body []byte) (int, []byte) {
			return status, bytes.Replace(body, []byte("auth/approle/role/plugin/secret-id"), []byte("sys/wrapping/wrap"), 1)
		})
	}
	_, err := p.transit(t).Open(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrDenied)
	require.ErrorContains(t, err, "put another thing in its place")
}

func TestALoginThatIsOverEndsItsToken(t *testing.T) {
	p := newPlace(t)
	logins["AppRole"](t, p)
	s, err := p.transit(t).Open(t.Context())
	require.NoError(t, err)
	requireWorks(t, s)
	require.NoError(t, s.Close(t.Context()))
	_, err = s.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrDenied, "Vault knows the token no more")

	logins["token"](t, p)
	s, err = p.transit(t).Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Close(t.Context()))
	requireWorks(t, s) // that of a file is not this plugin's to end
}

func TestARefusedLoginSaysWhereAndNotWithWhat(t *testing.T) {
	for name, login := range logins {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			path, _, _ := login(t, p)
			if path == "" {
				p.config.Auth.Cert.Name = "none"
			} else {
				rewrite(t, path, "hvs.not-good")
			}
			_, err := p.transit(t).Open(t.Context())
			require.ErrorIs(t, err, kmsplugin.ErrDenied)
			require.ErrorContains(t, err, p.Address)
			require.NotContains(t, err.Error(), "not-good")
		})
	}
}
