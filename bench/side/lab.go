package side

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// The names of the KMS providers in the files. kube-apiserver seals under a
// seed (source type 1) since 1.29; under the name CounterKMS its own switch for
// tests makes it seal under a DEK (source type 0), as it did before.
const (
	CounterKMS = "counter"
	SeedKMS    = "seeded"
)

// Lab is the place where sides live: a folder with files, keys and sockets.
// There is one at a time in a process, for kube-apiserver's switch is global.
// Not for concurrent use.
type Lab struct {
	folder  string
	keys    *keyfile.Plugin
	plugins []*Plugin
	restore func() // of kube-apiserver's switch

	sides map[*Side]struct{} // that are open
	files int
}

// NewLab makes a lab. The caller closes it.
func NewLab(ctx context.Context) (*Lab, error) {
	folder, err := os.MkdirTemp("", "bench") // a short name: a socket's has to fit into about 100 bytes
	if err != nil {
		return nil, err
	}
	file := keyfile.At(filepath.Join(folder, "keys.json"))
	if _, err := file.Create(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	keys, err := file.Open()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return &Lab{
		folder: folder, keys: keys, sides: map[*Side]struct{}{},
		restore: encryptionconfig.SetKDFForTests(CounterKMS, false),
	}, nil
}

// Plugin starts a plugin. All plugins of a lab have the same keys.
func (l *Lab) Plugin(ctx context.Context, b Behaviour) (*Plugin, error) {
	p, err := serve(ctx, fmt.Sprintf("unix://%s/%d.sock", l.folder, len(l.plugins)), l.keys, b)
	if err != nil {
		return nil, err
	}
	l.plugins = append(l.plugins, p)
	return p, nil
}

// callTimeout bounds a call to a plugin: with patience, for a machine may be busy.
const callTimeout = 10 * time.Second

// KMSFile writes an EncryptionConfiguration with one KMS v2 provider.
func (l *Lab) KMSFile(name string, p *Plugin) (string, error) {
	return l.file(fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q, timeout: %s}", name, p.Endpoint, callTimeout))
}

// KeyFile writes an EncryptionConfiguration with a provider, such as aesgcm,
// that holds a key of 32 bytes. All such files hold the same key.
func (l *Lab) KeyFile(kind string) (string, error) {
	return l.file(fmt.Sprintf("%s: {keys: [{name: key1, secret: %s}]}", kind, localKeyText))
}

func (l *Lab) file(provider string) (string, error) {
	l.files++
	path := filepath.Join(l.folder, fmt.Sprintf("encryption-%d.yaml", l.files))
	text := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - %s
  - identity: {}
`, provider)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// side makes a side that is closed with the lab, if it was not before.
func (l *Lab) side(c Config, t value.Transformer, stop func()) *Side {
	s := &Side{Name: c.Name, File: c.File, Transformer: t}
	s.close = func() {
		delete(l.sides, s) // or the lab would keep all that it holds
		stop()
	}
	l.sides[s] = struct{}{}
	return s
}

// Close takes down everything that the lab has made and removes its folder.
func (l *Lab) Close() error {
	for s := range l.sides {
		s.Close()
	}
	for _, p := range l.plugins {
		_ = p.stop() // that it cut off a connection is no news: a side still had it
	}
	l.restore()
	return os.RemoveAll(l.folder)
}
