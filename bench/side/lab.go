package side

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/options/encryptionconfig"

	"github.com/kube-atrest/atrest"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/measure"
)

// KMSName is that of the KMS provider in the files.
const KMSName = "kms"

// dekKMS is the name for which kube-apiserver's own switch for tests makes it seal under a
// DEK (source type 0), as it did before 1.29, and not under a seed (source type 1).
const dekKMS = "dek"

// recipe is how a side is made that is no bare cipher.
type recipe struct {
	provider string             // that holds its key; or
	kms      string             // the name of the KMS provider
	mode     envelope.WriteMode // of this library; empty for kube-apiserver
}

var recipes = map[string]recipe{
	AtrestCounter: {kms: KMSName, mode: envelope.Counter},
	AtrestSeed:    {kms: KMSName, mode: envelope.Seed},
	AtrestAESGCM:  {provider: "aesgcm", mode: envelope.Counter},
	Kube:          {kms: KMSName},
	KubeDEK:       {kms: dekKMS},
	KubeAESGCM:    {provider: "aesgcm"},
}

// Lab is the place where sides live: a folder with files, keys and sockets.
// There is one at a time in a process, for kube-apiserver's switch is global.
// Not for concurrent use.
type Lab struct {
	// Quick is a plugin that answers at once, and Slow one that takes its time.
	Quick, Slow *measure.Plugin

	folder  string
	restore func() // of kube-apiserver's switch
	files   int
}

// NewLab makes a lab whose slow plugin takes so long to unwrap. The caller closes it.
func NewLab(ctx context.Context, delay time.Duration) (*Lab, error) {
	folder, err := os.MkdirTemp("", "bench") // a short name: a socket's has to fit into about 100 bytes
	if err != nil {
		return nil, err
	}
	l := &Lab{folder: folder}
	if l.Quick, l.Slow, err = measure.StartPlugins(ctx, folder, delay); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	l.restore = encryptionconfig.SetKDFForTests(dekKMS, false)
	return l, nil
}

// Start makes the side of a name with one of the plugins, which a side without a KMS
// does not ask. The caller closes it.
func (l *Lab) Start(ctx context.Context, name string, p *measure.Plugin) (*Side, error) {
	r, ok := recipes[name]
	if !ok {
		return l.bare(ctx, name)
	}
	provider := fmt.Sprintf("kms: {apiVersion: v2, name: %s, endpoint: %q, timeout: 10s}", r.kms, p.Endpoint)
	if r.provider != "" {
		provider = fmt.Sprintf("%s: {keys: [{name: key1, secret: %s}]}", r.provider, localKeyText)
	}
	file, err := l.file(provider)
	if err != nil {
		return nil, err
	}
	s := &Side{Name: name}
	if r.mode != "" {
		err = s.startAtrest(ctx, file, r.mode)
	} else {
		err = s.startKube(ctx, file)
		s.renew = func(ctx context.Context) error { return s.startKube(ctx, file) }
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// startAtrest is this library, linked in as an apiserver does it. It follows its file.
func (s *Side) startAtrest(ctx context.Context, file string, mode envelope.WriteMode) error {
	o := atrest.NewOptions()
	o.ConfigFile, o.AutomaticReload, o.DEKSource = file, true, string(mode)
	encryption, err := o.Start(ctx, s.Name)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ended sync.WaitGroup
	ended.Go(func() { _ = encryption.Run(running) }) // a side that does not follow its file fails where it has to
	s.Transformer = encryption.ResourceTransformers().TransformerForResource(secrets)
	s.LookAhead = func(ctx context.Context, values iter.Seq[[]byte]) { encryption.Warm(ctx, values) }
	s.stop = func() {
		stop()
		ended.Wait()
		encryption.Close()
	}
	return nil
}

// startKube is kube-apiserver's own encryption, which does not follow its file.
func (s *Side) startKube(ctx context.Context, file string) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	loaded, err := encryptionconfig.LoadEncryptionConfig(running, file, false, s.Name)
	if err != nil {
		stop()
		return err
	}
	s.Transformer = encryptionconfig.StaticTransformers(loaded.Transformers).TransformerForResource(secrets)
	s.stop = stop
	return nil
}

// file writes an EncryptionConfiguration with one provider.
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

// Close takes down the plugins and removes the folder. Those who started sides have
// closed them.
func (l *Lab) Close() error {
	l.Quick.Stop()
	l.Slow.Stop()
	l.restore()
	return os.RemoveAll(l.folder)
}
