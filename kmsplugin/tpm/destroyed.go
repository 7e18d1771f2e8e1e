package tpm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
)

// Destroy removes a version for ever: its id, or its key_id, has to be given whole. What is
// wrapped under it cannot be read any more with this file, or with another node's that is made
// of a copy of it; copies of the file from before still have the key, which the TPM or the
// recovery key opens, and so may the disk. It is refused of the version that writes. A
// [kmsplugin.Keeper] of the same file goes on without it at its next look. It needs no TPM.
// ctx as in Create.
func (s *Store) Destroy(ctx context.Context, id string) (info KeyInfo, err error) {
	_, err = s.change(ctx, func(now *ring) (*ring, string, error) {
		k, err := now.ToDestroy(id)
		if err != nil {
			return nil, "", err
		}
		info = now.info(k)
		return now.like(now.Without(k)), now.Writes, nil
	})
	if err != nil {
		return KeyInfo{}, err
	}
	return info, nil
}

// MayDestroy is an error if [Store.Destroy] would remove nothing. Nothing is changed, and it needs no TPM.
func (s *Store) MayDestroy(id string) error {
	now, _, err := s.load()
	if err != nil && !errors.Is(err, keptfile.ErrNotDurable) {
		return s.disk.Explain(err)
	}
	_, err = now.ToDestroy(id)
	return s.disk.Explain(err)
}

// Destroy removes a version from the file.
func (o *session) Destroy(ctx context.Context, v kmsplugin.Version) error {
	_, err := o.store.Destroy(ctx, v.Label)
	return err
}

// inPlaceOf is the ring as it may take the place of another one, with the keys that only that one has: nothing
// is lost by that, and nothing comes back that was destroyed. What was destroyed there goes here if it may.
func (r *ring) inPlaceOf(now *ring, removes bool) (*ring, error) {
	all := r.like(r.Joined(now.Ring))
	if err := all.HasAll(now.Ring); err != nil {
		return nil, err
	}
	for _, k := range now.Keys {
		if r.HasDestroyed(k.id) && !removes {
			return nil, fmt.Errorf("version %s was destroyed in it, and would be removed here for ever: who can write a copy can have it say so of any version: see on its node that it is so (list), and that nothing is stored under it (atrest retire), and have it removed (--remove-destroyed)", k.id)
		}
	}
	if err := r.Spares(now.Ring); err != nil {
		return nil, err
	}
	for _, id := range now.Destroyed {
		if _, has := r.ByID[id]; has {
			return nil, fmt.Errorf("version %s was destroyed here, or in a copy that was recovered with --remove-destroyed: if nobody meant it, or to have it back, move this file away and recover once more; if it was meant, destroy it in the other file too", id)
		}
	}
	return all.remembering(removes, now.Destroyed), nil
}

// remembering is the same that remembers what was destroyed elsewhere, and what its own file says only if
// that is to be believed: who can write a copy has it say so of a version that is yet to come here.
func (r *ring) remembering(own bool, elsewhere []string) *ring {
	keys := *r.Ring
	if !own {
		keys.Destroyed = nil
	}
	keys.Destroyed = slices.Compact(slices.Sorted(slices.Values(slices.Concat(keys.Destroyed, elsewhere))))
	return r.like(&keys)
}
