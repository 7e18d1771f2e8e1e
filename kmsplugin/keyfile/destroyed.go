package keyfile

import (
	"context"
	"errors"
	"fmt"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// Destroy removes a version for ever: its id, or its key_id, has to be given whole. What is
// wrapped under it cannot be read any more with this file, or with one that this one is
// merged or imported into; copies of the file from before still have the key, and so may the
// disk. It is refused of the version that writes. A [kmsplugin.Keeper] of the same file
// goes on without it at its next look. ctx as in Create.
func (f *File) Destroy(ctx context.Context, id string) (KeyInfo, error) {
	return f.change(ctx, func(now *ring) (*ring, key, error) {
		k, err := now.ToDestroy(id)
		if err == nil && len(now.Destroyed) >= maxVersions {
			err = fmt.Errorf("%w: %d versions were destroyed in it: serve a new file under another provider name and migrate to it", ErrFull, len(now.Destroyed))
		}
		if err != nil {
			return nil, key{}, err
		}
		return &ring{Ring: now.Without(k)}, k, nil
	})
}

// MayDestroy is an error if [File.Destroy] would remove nothing. Nothing is changed.
func (f *File) MayDestroy(id string) error {
	ring, _, err := f.load()
	if err != nil && !errors.Is(err, ErrNotDurable) {
		return f.disk.Explain(err)
	}
	_, err = ring.ToDestroy(id)
	return f.disk.Explain(err)
}

// Destroy removes a version from the file.
func (s *session) Destroy(ctx context.Context, v kmsplugin.Version) error {
	_, err := s.file.Destroy(ctx, v.Label)
	return err
}
