package tpm

import (
	"context"
	"crypto/hpke"
	"fmt"

	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keyring"
)

// Reseal seals all keys of the file again, under the same TPM, with [Config.PCRs] as they are now:
// to do before and after something that changes them, as an update of the firmware does. With
// recovery they are sealed for a new recovery key, which is returned, also with an error as
// Create has it; the old one opens them no more. To bind what has no recovery key to PCRs is
// refused (ErrConfig). ctx as in Create.
func (s *Store) Reseal(ctx context.Context, recovery bool) (info KeyInfo, recoveryKey string, err error) {
	var paper *paper
	info, err = s.change(ctx, func(now *ring) (next *ring, id string, err error) {
		to := *now
		if recovery {
			if paper, err = newPaper(s.random); err != nil {
				return nil, "", err
			}
			to.recovery = paper.public
		}
		if !s.pcrs.none() && to.recovery == nil {
			return nil, "", fmt.Errorf("%w: PCRs %s without a recovery key: the next update of the firmware would close the keys for ever: make one with it (reseal --recovery)", ErrConfig, s.pcrs)
		}
		err = s.withTPM(ctx, func(c *chip) error {
			if err := c.is(now.primary); err != nil {
				return err
			}
			next, err = s.sealAll(c, now, to, func(k key) (kek.KEK, error) { return openKey(c, now, k) })
			return err
		})
		if err == nil {
			err = s.show(next.info(next.ByID[now.Writes]), paper)
		}
		return next, now.Writes, err
	})
	return s.tell(info, paper, err)
}

// Recover opens all keys of the file with the recovery key, and seals them under the TPM of this
// machine, with [Config.PCRs] as they are now: after the old TPM was cleared or died, or for
// another node. They keep their key_ids. If from is empty it is this file, and otherwise the path
// of a copy of another node's, whose keys are put in this file, or make it. Where there is a
// file it goes on to write with what it did, bound to the PCRs that it was, for the recovery key
// that it had, if any: that of the copy need not be the same, and takes its place by
// [Config.Adopt]. A copy that lacks a key that is here is refused. ctx as in Create.
func (s *Store) Recover(ctx context.Context, recoveryKey, from string) (KeyInfo, error) {
	opened, err := readRecovery(recoveryKey)
	if err != nil {
		return KeyInfo{}, err
	}
	source := s
	if from != "" {
		source = &Store{disk: keptfile.At(from, s.config.Clock)}
	}
	all, _, err := source.load()
	if err == nil {
		err = all.isFor(opened)
	}
	if err != nil {
		return KeyInfo{}, source.disk.Explain(err)
	}
	if s.exists() {
		return s.change(ctx, func(now *ring) (*ring, string, error) {
			next, err := all.inPlaceOf(now)
			if err != nil {
				return nil, "", fmt.Errorf("%s does not go in its place: %w", source.Path(), err)
			}
			next, err = s.sealedHere(ctx, next, s.staying(now, next), opened)
			return next, now.Writes, err
		})
	}
	var next *ring
	err = s.disk.Make(ctx, func() (data []byte, err error) {
		if next, err = s.sealedHere(ctx, all, *all, opened); err != nil {
			return nil, err
		}
		return encode(next)
	})
	if err != nil {
		return KeyInfo{}, s.disk.Explain(err)
	}
	return next.info(next.ByID[next.Writes]), nil
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

// sealedHere opens all keys with the recovery key, and seals them under this TPM.
func (s *Store) sealedHere(ctx context.Context, all *ring, to ring, opened hpke.PrivateKey) (next *ring, err error) {
	err = s.withTPM(ctx, func(c *chip) error {
		next, err = s.sealAll(c, all, to, func(k key) (kek.KEK, error) {
			plain, err := openWith(opened, k.id, k.recovery)
			if err != nil {
				return kek.KEK{}, err
			}
			return kekOf(k.id, plain)
		})
		return err
	})
	return next, err
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

// sealAll seals all keys as next has it, which also says what writes, with the PCRs that are asked for.
func (s *Store) sealAll(c *chip, all *ring, next ring, open func(key) (kek.KEK, error)) (*ring, error) {
	next.primary = c.name()
	if s.config.PCRs != "" {
		next.pcrs = s.pcrs
	}
	var keys []key
	for _, old := range all.Keys {
		secret, err := open(old)
		if err != nil {
			return nil, err
		}
		k, err := sealKey(c, &next, key{id: old.id, created: old.created}, secret)
		secret.Erase()
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	next.Ring = keyring.New(next.Writes, keys...)
	next.Destroyed = all.Destroyed
	return &next, nil
}
