package tpm

import (
	"context"
	"fmt"

	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
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
			to.take(paper.key)
		}
		if !s.pcrs.none() && to.recovery == nil {
			return nil, "", fmt.Errorf("%w: PCRs %s without a recovery key: the next update of the firmware would close the keys for ever: make one with it (reseal --recovery)", ErrConfig, s.pcrs)
		}
		err = s.withTPM(ctx, func(c *chip) error {
			if err := c.is(now.primary); err != nil {
				return err
			}
			switch {
			case recovery:
			case now.format == firstFormat && now.recovery == nil:
				to.auth = noAuth[:]
			default:
				if to.auth, err = now.authOf(c); err != nil {
					return err
				}
			}
			next, err = s.sealAll(c, now, to, func(k key) (kek.KEK, error) { return now.opens(c, k, recovery) })
			return err
		})
		if err == nil {
			err = s.show(next.info(next.ByID[now.Writes]), paper)
		}
		return next, now.Writes, err
	})
	return s.tell(info, paper, err)
}

// opens opens a key to seal it again: what the file has for its recovery key is of no matter where it is
// sealed for a new one.
func (r *ring) opens(c *chip, k key, anew bool) (kek.KEK, error) {
	by, err := openKey(c, r, k)
	if err != nil {
		return kek.KEK{}, err
	}
	if err := r.proves(by.auth, k); err != nil && !anew {
		by.erase()
		return kek.KEK{}, err
	}
	clear(by.auth)
	return by.KEK, nil
}

// sealAll seals all keys as next has it, which also says what writes, with the PCRs that are asked for. Their
// values are read once: where one changes in between, the next key does not open.
func (s *Store) sealAll(c *chip, all *ring, next ring, open func(key) (kek.KEK, error)) (*ring, error) {
	next.primary, next.format = c.name(), formatVersion
	if s.config.PCRs != "" {
		next.pcrs = s.pcrs
	}
	if err := next.pcrs.check(); err != nil {
		return nil, err // a copy may have any
	}
	values, err := c.read(next.pcrs)
	if err != nil {
		return nil, err
	}
	var keys []key
	for _, old := range all.Keys {
		secret, err := open(old)
		if err != nil {
			return nil, err
		}
		k, err := sealKey(c, &next, key{id: old.id, created: old.created, pcrValues: values}, secret)
		secret.Erase()
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	next.Ring = keyring.New(next.Writes, keys...)
	next.Destroyed, next.auth = all.Destroyed, nil
	return &next, nil
}
