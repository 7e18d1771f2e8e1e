package tpm

import (
	"context"
	"crypto/hpke"
	"errors"
	"fmt"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
)

// Recover opens all keys of the file with the recovery key, and seals them under the TPM of this
// machine, with [Config.PCRs] as they are now: after the old TPM was cleared or died, or for
// another node. They keep their key_ids. If from is empty it is this file, and otherwise the path
// of a copy of another node's, whose keys are put in this file, or make it. Where there is a
// file it goes on to write with what it did, bound to the PCRs that it was, for the recovery key
// that it had, if any: that of the copy need not be the same, and takes its place by
// [Config.Adopt]. A copy that lacks a key that is here is refused, unless it was destroyed there,
// and one that has another key under an id that is here, as far as this TPM or the recovery key
// opens what is here: who can write a copy can put keys of their own in it. ctx as in Create.
func (s *Store) Recover(ctx context.Context, recoveryKey, from string) (KeyInfo, error) {
	opened, err := readRecovery(recoveryKey)
	if err != nil {
		return KeyInfo{}, err
	}
	var all *ring
	if from != "" {
		source := &Store{disk: keptfile.At(from, s.config.Clock)}
		if all, _, err = source.load(); err == nil {
			err = all.isFor(opened)
		}
		if err != nil {
			return KeyInfo{}, source.disk.Explain(err)
		}
	}
	if all == nil || s.exists() {
		return s.recoverHere(ctx, all, from, opened)
	}
	var next *ring
	err = s.disk.Make(ctx, func() (data []byte, err error) {
		if next, err = s.sealedHere(ctx, all, *all, opened, nil); err != nil {
			return nil, err
		}
		return encode(next)
	})
	if err != nil {
		return KeyInfo{}, s.disk.Explain(err)
	}
	return next.info(next.ByID[next.Writes]), nil
}

// recoverHere puts the keys of a copy in the file that there is, or seals those of the file itself if
// all is nil: as it is then, and not as it was before somebody else changed it.
func (s *Store) recoverHere(ctx context.Context, all *ring, from string, opened hpke.PrivateKey) (KeyInfo, error) {
	return s.change(ctx, func(now *ring) (*ring, string, error) {
		next := now
		if all == nil {
			if err := now.isFor(opened); err != nil {
				return nil, "", err
			}
		} else {
			var err error
			if next, err = all.inPlaceOf(now); err != nil {
				return nil, "", fmt.Errorf("%s does not go in its place: %w", from, err)
			}
		}
		next, err := s.sealedHere(ctx, next, s.staying(now, next), opened, now)
		return next, now.Writes, err
	})
}

// staying is what holds for the keys of a copy in a file that there is: what held there.
func (s *Store) staying(now, all *ring) ring {
	to := *all.like(all.Writing(now.Writes))
	to.pcrs = now.pcrs
	if now.recovery != nil && !s.config.Adopt {
		to.recovery = now.recovery
	}
	return to
}

// sealedHere opens all keys with the recovery key, and seals them under this TPM. They go in the place
// of now, unless that is nil.
func (s *Store) sealedHere(ctx context.Context, all *ring, to ring, opened hpke.PrivateKey, now *ring) (next *ring, err error) {
	err = s.withTPM(ctx, func(c *chip) error {
		next, err = s.sealAll(c, all, to, func(k key) (kek.KEK, error) {
			secret, err := recovered(opened, k)
			if err != nil || now == nil {
				return secret, err
			}
			if err := now.agrees(c, opened, k.id, secret); err != nil {
				secret.Erase()
				return kek.KEK{}, err
			}
			return secret, nil
		})
		return err
	})
	return next, err
}

// recovered opens a key with the recovery key.
func recovered(opened hpke.PrivateKey, k key) (kek.KEK, error) {
	plain, err := openWith(opened, k.id, k.recovery)
	if err != nil {
		return kek.KEK{}, err
	}
	return kekOf(k.id, plain)
}

// agrees is an error if another key is here under an id. What is sealed for the recovery key says
// nothing of who sealed it: its public half is in each copy. Where nothing opens what is here
// nobody can tell.
func (r *ring) agrees(c *chip, opened hpke.PrivateKey, id string, secret kek.KEK) error {
	here, has := r.ByID[id]
	if !has {
		return nil
	}
	was, err := kek.KEK{}, errOtherTPM
	if c.is(r.primary) == nil {
		was, err = openKey(c, r, here)
	}
	if unreadable(err) && r.isFor(opened) == nil {
		was, err = recovered(opened, here)
	}
	if unreadable(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer was.Erase()
	if !was.Equal(secret) {
		return fmt.Errorf("what the recovery key opens as version %s is another key than the one that is here: somebody has put it there, and nothing is changed: take a fresh copy from its node or, if there was no copy, seal the file again with the TPM (reseal)", id)
	}
	return nil
}

var errOtherTPM = errors.New("another TPM")

// unreadable tells if a key does not open whenever it is tried again.
func unreadable(err error) bool {
	return errors.Is(err, errOtherTPM) || errors.Is(err, kmsplugin.ErrKeyDisabled) || errors.Is(err, ErrDamaged)
}

// isFor is an error unless the keys are sealed for a recovery key.
func (r *ring) isFor(opened hpke.PrivateKey) error {
	switch {
	case r.recovery == nil:
		return fmt.Errorf("%w: no recovery key was made for this file: the TPM that it was made with alone opens it", ErrRecoveryKey)
	case string(opened.PublicKey().Bytes()) != string(r.recovery):
		return fmt.Errorf("%w: it is that of another file", ErrRecoveryKey)
	}
	return nil
}
