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
// recovery they are sealed for a new recovery key, which is returned; the old one opens them no
// more. ctx as in Create.
func (s *Store) Reseal(ctx context.Context, recovery bool) (info KeyInfo, recoveryKey string, err error) {
	info, err = s.change(ctx, func(now *ring) (next *ring, id string, err error) {
		to := *now
		if recovery {
			if recoveryKey, to.recovery, err = newRecovery(s.random); err != nil {
				return nil, "", err
			}
		}
		err = s.withTPM(ctx, func(c *chip) error {
			if err := c.is(now.primary); err != nil {
				return err
			}
			next, err = s.sealAll(c, now, to, func(k key) (kek.KEK, error) { return openKey(c, now, k) })
			return err
		})
		return next, now.Writes, err
	})
	if err != nil {
		return KeyInfo{}, "", err
	}
	return info, recoveryKey, nil
}

// Recover opens all keys of the file with the recovery key, and seals them under the TPM of this
// machine, with [Config.PCRs] as they are now: after the old TPM was cleared or died, or for
// another node. They keep their key_ids. from is the path of a copy of another node's file,
// whose keys take the place of this file's, or make it; it is refused if it lacks one that is
// here. If from is empty it is this file. ctx as in Create.
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
			next, err = s.sealedHere(ctx, next, opened)
			return next, all.Writes, err
		})
	}
	var next *ring
	err = s.disk.Make(ctx, func() (data []byte, err error) {
		if next, err = s.sealedHere(ctx, all, opened); err != nil {
			return nil, err
		}
		return encode(next)
	})
	if err != nil {
		return KeyInfo{}, s.disk.Explain(err)
	}
	return next.info(next.ByID[next.Writes]), nil
}

// sealedHere opens all keys with the recovery key, and seals them under this TPM.
func (s *Store) sealedHere(ctx context.Context, all *ring, opened hpke.PrivateKey) (next *ring, err error) {
	err = s.withTPM(ctx, func(c *chip) error {
		next, err = s.sealAll(c, all, *all, func(k key) (kek.KEK, error) {
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

// sealAll seals all keys as next has it, with the PCRs that are asked for.
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
	next.Ring = keyring.New(all.Writes, keys...)
	next.Destroyed = all.Destroyed
	return &next, nil
}
