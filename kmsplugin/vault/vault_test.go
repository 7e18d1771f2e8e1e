package vault_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
)

// place is a Vault with the key transit/keys/k and the policy "plugin", which is exactly
// enough.
type place struct {
	*vaulttest.Server
	config vault.Config // with a token of an hour in a file
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{Server: vaulttest.Start(t)}
	p.CreateKey("k", "")
	p.config = vault.Config{Address: p.Address, Mount: "transit", Key: "k", TLS: vault.TLS{CAFile: p.CA}}
	policy, err := vault.Policy(p.config)
	require.NoError(t, err)
	p.Policy("plugin", policy)
	p.config.Auth.TokenFile = write(t, p.Token(time.Hour, "plugin"))
	return p
}

// write writes a file as an editor does, with the end of the line.
func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secret")
	rewrite(t, path, text)
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// rewrite has a file replaced at once, as a kubelet does.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text+"\n"), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func (p *place) transit(t *testing.T) *vault.Transit {
	t.Helper()
	transit, err := vault.New(p.config)
	require.NoError(t, err)
	return transit
}

// patient is how a keeper is told to wait for calls on a machine that is busy with other tests, where
// what takes long is no trouble.
func patient(config kmsplugin.Config) kmsplugin.Config {
	config.CallTimeout = 20 * time.Second
	return config
}

// open opens a session until the test ends.
func open(t *testing.T, transit *vault.Transit) kmsplugin.Session {
	t.Helper()
	s, err := transit.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// writer is what a session wraps with.
func writer(t *testing.T, s kmsplugin.Session) kmsplugin.Version {
	t.Helper()
	found, err := s.Versions(t.Context())
	require.NoError(t, err)
	return found.All[found.Writes]
}

var dek = []byte("0123456789abcdef0123456789abcdef")

// wrap wraps under a version, as the kit does.
func wrap(t *testing.T, s kmsplugin.Session, v kmsplugin.Version) []byte {
	t.Helper()
	ciphertext, used, err := s.Wrap(t.Context(), v, dek, []byte(v.KeyID()))
	require.NoError(t, err)
	require.Equal(t, v.KeyID(), used.KeyID())
	return ciphertext
}

func unwrap(t *testing.T, s kmsplugin.Session, v kmsplugin.Version, ciphertext []byte) error {
	t.Helper()
	got, err := s.Unwrap(t.Context(), v, ciphertext, []byte(v.KeyID()))
	if err == nil {
		require.Equal(t, dek, got)
	}
	return err
}

// requireWorks wraps and unwraps.
func requireWorks(t *testing.T, s kmsplugin.Session) {
	t.Helper()
	v := writer(t, s)
	require.NoError(t, unwrap(t, s, v, wrap(t, s, v)))
}

// later returns when Vault's clock shows another second.
func (p *place) later(t *testing.T) {
	t.Helper()
	if !p.IsReal() {
		p.Faults().Advance(2 * time.Second)
		return
	}
	began := time.Now().Unix()
	require.Eventually(t, func() bool { return time.Now().Unix() > began+1 }, time.Minute, 10*time.Millisecond)
}

func TestASecretThatOthersMayReadIsToldOnce(t *testing.T) {
	p := newPlace(t)
	cert, key := p.ClientCertificate("plugin")
	secretID := write(t, "an-id")
	for mode, told := range map[os.FileMode]int{0o600: 0, 0o640: 0, 0o644: 1} {
		for path, config := range map[string]vault.Config{
			p.config.Auth.TokenFile: {Auth: p.config.Auth},
			secretID:                {Auth: vault.Auth{AppRole: &vault.AppRole{RoleID: "r", SecretIDFile: secretID}}},
			key:                     {Auth: vault.Auth{Cert: &vault.Cert{}}, TLS: vault.TLS{CertFile: cert, KeyFile: key}},
		} {
			require.NoError(t, os.Chmod(path, mode))
			config.Address, config.Mount, config.Key, config.TLS.CAFile = p.Address, "transit", "k", p.CA
			log := &bytes.Buffer{}
			ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log))))
			transit, err := vault.New(config)
			require.NoError(t, err)
			for range 2 {
				if s, err := transit.Open(ctx); err == nil {
					require.NoError(t, s.Close(ctx))
				}
			}
			require.Equal(t, told, strings.Count(log.String(), "chmod 600"), "%v: %s", mode, log)
			require.Equal(t, told, strings.Count(log.String(), path))
		}
	}
}
