package keyfile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kube-atrest/atrest/kmsplugin"
)

var errWrites = errors.New("it wraps")

// Destroy removes a version for ever: its id, or its key_id, has to be given whole. What is
// wrapped under it cannot be read any more with this file, or with one that this one is
// merged or imported into; copies of the file from before still have the key, and so may the
// disk. It is refused of the version that writes. A [kmsplugin.Keeper] of the same file
// goes on without it at its next look. ctx as in Create.
func (f *File) Destroy(ctx context.Context, id string) (KeyInfo, error) {
	return f.change(ctx, func(now *keyring) (*keyring, key, error) {
		k, err := now.find(id)
		switch {
		case err != nil:
			return nil, key{}, err
		case id != k.id && id != k.version().KeyID():
			return nil, key{}, fmt.Errorf("%w: %.64q is only the beginning of an id: give all of it", errNoVersion, id)
		case k.id == now.writes:
			return nil, key{}, fmt.Errorf("version %s is not destroyed: %w: activate another one first, and write anew what is stored under this one", k.id, errWrites)
		case len(now.destroyed) >= maxVersions:
			return nil, key{}, fmt.Errorf("%w: %d versions were destroyed in it: serve a new file under another provider name and migrate to it", ErrFull, len(now.destroyed))
		}
		return now.without(k), k, nil
	})
}

// Destroy removes a version from the file.
func (s *session) Destroy(ctx context.Context, v kmsplugin.Version) error {
	_, err := s.file.Destroy(ctx, v.Label)
	return err
}

// without has one key less, and remembers that.
func (r *keyring) without(gone key) *keyring {
	next := newKeyring(r.writes, slices.DeleteFunc(slices.Clone(r.keys), func(k key) bool { return k.id == gone.id })...)
	next.destroyed = slices.Sorted(slices.Values(append(slices.Clone(r.destroyed), gone.id)))
	return next
}

func (r *keyring) hasDestroyed(id string) bool {
	_, found := slices.BinarySearch(r.destroyed, id)
	return found
}

// spares is an error if what writes in other was destroyed here.
func (r *keyring) spares(other *keyring) error {
	if r.hasDestroyed(other.writes) {
		return fmt.Errorf("version %s was destroyed in one of the files, and %w in the other: activate another one there first", other.writes, errWrites)
	}
	return nil
}

// forgets is an error if something was destroyed in other, and is not known here as that.
func (r *keyring) forgets(other *keyring) error {
	for _, id := range other.destroyed {
		if !r.hasDestroyed(id) {
			return fmt.Errorf("version %s was destroyed, and it does not know: merge it instead or, to have that version back, move this file away first", id)
		}
	}
	return nil
}
