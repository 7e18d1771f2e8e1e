package vault_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

// Of each file that a login or TLS needs, at the start and when it is logged in anew.
func TestAFileThatMayNotBeReadIsAnErrorWithARemedy(t *testing.T) {
	p := newPlace(t)
	cert, key := p.ClientCertificate("plugin")
	const secret = "hvs.a-secret"
	token, roleID, secretID := write(t, secret), write(t, secret), write(t, secret)
	p.config.TLS.CertFile, p.config.TLS.KeyFile = cert, key
	for _, path := range []string{token, roleID, secretID, p.CA, cert, key} {
		letThrough(t, path)
	}
	for name, test := range map[string]struct {
		path string
		auth vault.Auth
	}{
		"token":                 {token, vault.Auth{TokenFile: token}},
		"role-id":               {roleID, vault.Auth{AppRole: &vault.AppRole{RoleIDFile: roleID, SecretIDFile: secretID}}},
		"secret-id":             {secretID, vault.Auth{AppRole: &vault.AppRole{RoleIDFile: roleID, SecretIDFile: secretID}}},
		"service account token": {token, vault.Auth{Kubernetes: &vault.Kubernetes{Role: "r", TokenFile: token}}},
		"JWT":                   {token, vault.Auth{JWT: &vault.JWT{Role: "r", TokenFile: token}}},
		"CA":                    {p.CA, vault.Auth{TokenFile: token}},
		"certificate":           {cert, vault.Auth{TokenFile: token}},
		"key":                   {key, vault.Auth{Cert: &vault.Cert{}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := p.config
			c.Auth = test.auth
			var started error
			var transit *vault.Transit
			asNobody(func() { transit, started = vault.New(c) })
			require.NoError(t, started, "they can be read so far")
			hide(t, test.path)
			var opened error
			asNobody(func() { _, started = vault.New(c) })
			asNobody(func() { _, opened = transit.Open(t.Context()) })
			for _, err := range []error{started, opened} {
				require.ErrorIs(t, err, fs.ErrPermission)
				require.ErrorIs(t, err, kmsplugin.ErrDenied)
				require.ErrorContains(t, err, "the "+name+" file: open "+test.path)
				require.ErrorContains(t, err, "let the user of this process read it")
				require.NotContains(t, err.Error(), secret)
			}
		})
	}
}

// hide has a file be there, and let nobody read it until the test ends.
func hide(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Chmod(path, 0))
	t.Cleanup(func() { require.NoError(t, os.Chmod(path, 0o644)) })
}

// asNobody does something on a thread that the file system takes for another user's, who is not
// root in any case.
func asNobody(do func()) {
	if os.Geteuid() != 0 {
		do()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		if _, err := unix.SetfsuidRetUid(65534); err == nil {
			do()
		}
	}()
	<-done
}

// letThrough has everybody come as far as a file, and read it.
func letThrough(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.Chmod(path, 0o644))
	for folder := filepath.Dir(path); folder != os.TempDir() && len(folder) > 1; folder = filepath.Dir(folder) {
		require.NoError(t, os.Chmod(folder, 0o755))
	}
}
