package tpm

import (
	"context"
	"crypto/hmac"
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
// [Config.Adopt]. What only this file has stays, as far as this TPM or the recovery key opens it. What was
// destroyed in a copy is removed here, and remembered as destroyed, if
// [Config.RemoveDestroyed] is set; otherwise a copy in which a key that is here was destroyed is refused, and
// so is one that has a key that its nodes have not made, or that was destroyed here; and one that
// has another key under an id that is here, as far as this TPM or the recovery key opens
// what is here. ctx as in Create.
func (s *Store) Recover(ctx context.Context, recoveryKey, from string) (KeyInfo, error) {
	given, err := readRecovery(recoveryKey)
	if err != nil {
		return KeyInfo{}, err
	}
	of := source{path: from, given: given}
	if from != "" {
		disk := &Store{disk: keptfile.At(from, s.config.Clock)}
		if of.ring, _, err = disk.load(); err == nil {
			err = of.isFor(given)
		}
		if err != nil {
			return KeyInfo{}, disk.disk.Explain(err)
		}
	}
	if from == "" || s.exists() {
		return s.recoverHere(ctx, of)
	}
	var next *ring
	err = s.disk.Make(ctx, func() (data []byte, err error) {
		if next, err = s.sealedHere(ctx, of.remembering(s.config.RemoveDestroyed, nil), of, nil); err != nil {
			return nil, err
		}
		return encode(next)
	})
	if err != nil {
		return KeyInfo{}, s.disk.Explain(err)
	}
	return next.info(next.ByID[next.Writes]), nil
}

// A source is a file whose keys are opened with its recovery key.
type source struct {
	*ring
	path  string // of a copy; empty if it is the file itself, as it is when it is changed
	given *recoveryKey
}

// recoverHere puts the keys of a copy in the file that there is, or seals those of the file itself: as it
// is then, and not as it was before somebody else changed it.
func (s *Store) recoverHere(ctx context.Context, from source) (KeyInfo, error) {
	return s.change(ctx, func(now *ring) (next *ring, _ string, err error) {
		if from.path == "" {
			from.ring, next, err = now, now, now.isFor(from.given)
		} else if next, err = from.inPlaceOf(now, s.config.RemoveDestroyed); err != nil {
			err = fmt.Errorf("%s does not go in its place: %w", from.path, err)
		}
		if err != nil {
			return nil, "", err
		}
		next, err = s.sealedHere(ctx, next, from, now)
		return next, now.Writes, err
	})
}

// sealedHere opens all keys, those of a source with the recovery key, and seals them under this TPM. They go
// in the place of now, unless that is nil.
func (s *Store) sealedHere(ctx context.Context, all *ring, from source, now *ring) (next *ring, err error) {
	err = s.withTPM(ctx, func(c *chip) error {
		to, err := s.staying(c, all, from.given, now)
		if err != nil {
			return err
		}
		next, err = s.sealAll(c, all, to, func(k key) (kek.KEK, error) {
			if _, comes := from.ByID[k.id]; comes {
				return s.brought(c, from, k, now)
			}
			return s.kept(c, from.given, k, now)
		})
		return err
	})
	return next, err
}

// brought is a key that comes from a source.
func (s *Store) brought(c *chip, from source, k key, now *ring) (kek.KEK, error) {
	secret, err := from.given.opens(from.ring, k)
	if err != nil && from.path != "" {
		err = fmt.Errorf("%s: %w", from.path, err)
	}
	if err != nil {
		return kek.KEK{}, err
	}
	same, err := now.agrees(c, from.given, k.id, secret)
	if err == nil {
		err = s.prove(from.ring, k.id, same)
	}
	if err != nil {
		secret.Erase()
		return kek.KEK{}, err
	}
	return secret, nil
}

// kept is a key that is here and not in the copy, as where both were rotated.
func (s *Store) kept(c *chip, given *recoveryKey, k key, now *ring) (kek.KEK, error) {
	secret, sure, err := now.opensHere(c, given, k)
	if err != nil {
		return kek.KEK{}, fmt.Errorf("version %s is here and not in the copy, and does not open: recover this file first, alone and with its own recovery key: %w", k.id, err)
	}
	if err := s.prove(now, k.id, sure); err != nil {
		secret.Erase()
		return kek.KEK{}, err
	}
	return secret, nil
}

// staying is what holds for all keys in a file that there is: what held there.
func (s *Store) staying(c *chip, all *ring, given *recoveryKey, now *ring) (to ring, err error) {
	to = *all
	to.take(given)
	if now == nil {
		return to, nil
	}
	to.Ring, to.pcrs = all.Writing(now.Writes), now.pcrs
	if now.recovery == nil || s.config.Adopt || now.isFor(given) == nil {
		return to, nil
	}
	to.recovery = now.recovery
	if to.auth, err = now.authOf(c); err != nil {
		return ring{}, fmt.Errorf("whose the recovery key of this file is cannot be told, and it is another one than was given: recover this file first, alone and with its own recovery key, or have that of the copy take its place (--adopt-recovery): %w", err)
	}
	return to, nil
}

// opens opens a key of a file with the recovery key, and nothing that others have sealed for it: its
// public half is in each copy.
func (k *recoveryKey) opens(r *ring, of key) (kek.KEK, error) {
	if r.format != firstFormat && !hmac.Equal(r.proof(of, k.auth), of.proof) {
		return kek.KEK{}, fmt.Errorf("%w: what is there for the recovery key as version %s was not sealed by one of its nodes: somebody has put it there, and nothing is changed: take a fresh copy from its node or, if there was no copy, seal the file again for a new recovery key (reseal --recovery)", ErrDamaged, of.id)
	}
	plain, err := openWith(k.of(r.format), of.id, of.recovery)
	if err != nil {
		return kek.KEK{}, err
	}
	return kekOf(of.id, plain)
}

// agrees is an error if another key is here under an id. It tells if the same is here for sure, as
// this TPM or the recovery key says.
func (r *ring) agrees(c *chip, given *recoveryKey, id string, secret kek.KEK) (same bool, err error) {
	if r == nil {
		return false, nil
	}
	here, has := r.ByID[id]
	if !has {
		return false, nil
	}
	was, sure, err := r.opensHere(c, given, here)
	if unreadable(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer was.Erase()
	if !was.Equal(secret) {
		return false, fmt.Errorf("what the recovery key opens as version %s is another key than the one that is here, and nothing is changed: somebody has put one of them there: take a fresh copy from its node or, if there was no copy, seal the file again for a new recovery key (reseal --recovery); if the wrong one is that in this file, as it was made of a copy that somebody could write, move this file away and recover once more", id)
	}
	return sure, nil
}

// opensHere opens a key by the TPM if that does it, and by the recovery key otherwise. It is sure of
// what the TPM opens, or has a proof.
func (r *ring) opensHere(c *chip, given *recoveryKey, k key) (was kek.KEK, sure bool, err error) {
	err = errOtherTPM
	if c.is(r.primary) == nil {
		var by opened
		by, err = openKey(c, r, k)
		clear(by.auth)
		was = by.KEK
	}
	if err == nil {
		return was, true, nil
	}
	if unreadable(err) && r.isFor(given) == nil {
		was, err = given.opens(r, k)
	}
	return was, r.format != firstFormat, err
}

var errOtherTPM = errors.New("another TPM")

// unreadable tells if a key does not open whenever it is tried again.
func unreadable(err error) bool {
	return errors.Is(err, errOtherTPM) || errors.Is(err, kmsplugin.ErrKeyDisabled) || errors.Is(err, ErrDamaged)
}

// isFor is an error unless the keys are sealed for a recovery key.
func (r *ring) isFor(given *recoveryKey) error {
	switch {
	case r.recovery == nil:
		return fmt.Errorf("%w: no recovery key was made for this file: the TPM that it was made with alone opens it", ErrRecoveryKey)
	case string(given.public(r.format)) != string(r.recovery):
		return fmt.Errorf("%w: it is that of another file", ErrRecoveryKey)
	}
	return nil
}
