package vault

import (
	"context"
	"os"
	"sync"

	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
)

var _ kmsplugin.Backend = (*Transit)(nil)

// A Transit is one key of a Transit engine. It is safe for concurrent use.
type Transit struct {
	config Config
	login  login
	nodes  dialer
	known  memory
	warned sync.Once

	holding sync.Mutex
	held    *held // the newest
}

// New makes the back end of a key, or says what is wrong with its config or its files. It does
// not ask Vault.
func New(config Config) (*Transit, error) {
	config, err := config.checked()
	if err != nil {
		return nil, err
	}
	t := &Transit{config: config, login: config.login(), nodes: newDialer()}
	if _, err := newClient(config, t.nodes); err != nil {
		return nil, err
	}
	for _, f := range t.login.files {
		if _, err := readSecret(f.what, f.path); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Config is how a [kmsplugin.Keeper] keeps this key: with the files that a login depends on,
// and the version to wrap with.
func (t *Transit) Config() kmsplugin.Config {
	c := kmsplugin.Config{Pin: t.config.KeyVersion}
	for _, f := range t.login.files {
		c.Credentials = append(c.Credentials, f.path)
	}
	for _, path := range []string{t.config.TLS.CAFile, t.config.TLS.CertFile, t.config.TLS.KeyFile} {
		if path != "" {
			c.Credentials = append(c.Credentials, path)
		}
	}
	return c
}

// Open logs in, with files as they are now. If those of the login are as they were, the token is
// the one that there is.
func (t *Transit) Open(ctx context.Context) (kmsplugin.Session, error) {
	t.warned.Do(func() { t.config.warn(ctx) })
	client, err := newClient(t.config, t.nodes)
	if err != nil {
		return nil, err
	}
	h, err := t.hold(ctx, client)
	if err != nil {
		client.close()
		return nil, err
	}
	return &session{As: "a session of Vault", transit: t, client: client, held: h}, nil
}

// warn tells of files that lasting secrets are in and that others may read. They are used: in a volume
// of a pod that is how they are, and nobody else is there.
func (c Config) warn(ctx context.Context) {
	files := []string{c.Auth.TokenFile, c.TLS.KeyFile}
	if c.Auth.AppRole != nil {
		files = append(files, c.Auth.AppRole.SecretIDFile)
	}
	for _, path := range files {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o004 != 0 {
			klog.FromContext(ctx).Error(nil, "the mode of a file lets others read it, who may log in to Vault with it: chmod 600, or in a volume defaultMode: 0400; and make another secret if others may have read it", "file", path, "mode", info.Mode().String())
		}
	}
}
