package tpm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/filestamp"
	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keyring"
)

var _ kmsplugin.Backend = (*Store)(nil)

// session serves the keys from memory: between two calls of Versions nothing depends on the disk
// or the TPM.
type session struct {
	store   *Store
	held    atomic.Pointer[held]
	looking sync.Mutex // one look at a time: a slow one would undo what a later one saw
	seen    filestamp.Stamp
	looked  time.Time
	problem error // of the last look, or nil
	fresh   bool  // it is Open's, and nobody was told
}

// held are the keys that were unsealed. It is read-only.
type held struct {
	*ring
	keks map[string]kek.KEK // by id
}

// Open unseals all keys. It fails only where ctx ends: what else is wrong is told by the session's
// Versions, and what was unsealed is read with.
func (s *Store) Open(ctx context.Context) (kmsplugin.Session, error) {
	s.disk.Sweep()
	o := &session{store: s, fresh: true}
	o.held.Store(&held{ring: &ring{Ring: keyring.New[key]("")}, keks: map[string]kek.KEK{}})
	if o.problem = o.look(ctx); ctx.Err() != nil {
		_ = o.Close(ctx)
		return nil, context.Cause(ctx)
	}
	return o, nil
}

// Versions reads the file if anything was done to it, unseals what is new, and now and then has
// the TPM prove that it would open the keys again. While the file is missing, damaged, open to
// others, or without a version that was served, or the TPM is away, another one or does not
// open a key, that is the error, and what is in memory unwraps.
func (o *session) Versions(ctx context.Context) (kmsplugin.Versions, error) {
	if !o.looking.TryLock() {
		return o.held.Load().Versions(), fmt.Errorf("%w: key file %s: the last look at it has not ended: do its disk and the TPM answer?", kmsplugin.ErrUnavailable, o.store.Path())
	}
	defer o.looking.Unlock()
	if !o.fresh {
		o.problem = o.look(ctx)
	}
	o.fresh = false
	return o.held.Load().Versions(), o.told(o.problem)
}

// told gives a problem a class, where it has none.
func (o *session) told(err error) error {
	if err == nil {
		return nil
	}
	err = o.store.disk.Explain(err)
	for _, class := range []error{kmsplugin.ErrKeyDisabled, kmsplugin.ErrDenied, kmsplugin.ErrThrottled, kmsplugin.ErrUnavailable} {
		if errors.Is(err, class) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", kmsplugin.ErrUnavailable, err)
}

// look brings what is held up to the file, and has the TPM prove itself when it is time.
func (o *session) look(ctx context.Context) error {
	now, had := o.store.config.Clock.Now(), o.held.Load()
	info, err := os.Lstat(o.store.Path())
	unchanged := err == nil && len(had.keks) > 0 && filestamp.Of(info) == o.seen
	// What could not be made durable stays so: a second attempt may succeed without the
	// bytes that the first one lost.
	if unchanged && (errors.Is(o.problem, keptfile.ErrNotDurable) || o.problem == nil && now.Sub(o.looked) < o.store.config.Check) {
		return o.problem
	}
	next, seen, unsynced := o.store.load()
	if next == nil {
		return unsynced
	}
	if err := next.HasAll(had.Ring); err != nil {
		return fmt.Errorf("%w, which this process has served: restore the file that has it; to serve this one and leave values unreadable, restart", err)
	}
	after := &held{ring: next, keks: maps.Clone(had.keks)}
	err = o.store.withTPM(ctx, func(c *chip) error { return after.fill(c, had) })
	after.drop()
	// Without an error it is all of them.
	after.ring = next.like(keyring.New(next.Writes, after.opened()...))
	o.held.Store(after)
	if err = cmp.Or(unsynced, err); err == nil || unsynced != nil {
		o.seen, o.looked = seen, now
	}
	return err
}

// drop erases the KEKs that the file has no more, which were destroyed.
func (h *held) drop() {
	for id, secret := range h.keks {
		if _, has := h.ByID[id]; !has {
			secret.Erase()
			delete(h.keks, id)
		}
	}
}

// fill unseals what is not held, and what writes in any case: that is the proof. The error is
// the first one of a key; the others are tried.
func (h *held) fill(c *chip, had *held) (first error) {
	if err := c.is(h.primary); err != nil {
		return err
	}
	for _, k := range h.Keys {
		mine, known := had.keks[k.id]
		if known && k.id != h.Writes && k.sealedAlike(had.ByID[k.id]) {
			continue
		}
		secret, err := openKey(c, h.ring, k)
		switch {
		case errors.Is(err, kmsplugin.ErrUnavailable):
			return err // the others would wait for it, too
		case err != nil:
			first = cmp.Or(first, err)
		case !known:
			h.keks[k.id] = secret
		default:
			if !mine.Equal(secret) {
				first = cmp.Or(first, fmt.Errorf("%w: version %s is another key than the one that was served", ErrDamaged, k.id))
			}
			secret.Erase()
		}
	}
	return first
}

// opened are the keys whose KEK is there.
func (h *held) opened() []key {
	var keys []key
	for _, k := range h.Keys {
		if _, ok := h.keks[k.id]; ok {
			keys = append(keys, k)
		}
	}
	return keys
}

func (o *session) Wrap(_ context.Context, v kmsplugin.Version, dek, aad []byte) ([]byte, kmsplugin.Version, error) {
	h := o.held.Load()
	secret, err := o.kek(h, v)
	if err != nil {
		return nil, kmsplugin.Version{}, err
	}
	return secret.Seal(dek, aad), h.ByID[v.Label].Version(), nil
}

func (o *session) Unwrap(_ context.Context, v kmsplugin.Version, ciphertext, aad []byte) ([]byte, error) {
	secret, err := o.kek(o.held.Load(), v)
	if err != nil {
		return nil, err
	}
	dek, err := secret.Open(ciphertext, aad)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w: ciphertext of %d bytes under key_id %.64q does not authenticate: it was damaged, or wrapped by something else", o.store.Path(), kmsplugin.ErrInvalid, len(ciphertext), aad)
	}
	return dek, nil
}

func (o *session) kek(h *held, v kmsplugin.Version) (kek.KEK, error) {
	secret, ok := h.keks[v.Label]
	if !ok {
		return kek.KEK{}, fmt.Errorf("key file %s: %w: it has no %s", o.store.Path(), kmsplugin.ErrUnknownKey, v)
	}
	return secret, nil
}

// Close erases the keys.
func (o *session) Close(context.Context) error {
	for _, secret := range o.held.Load().keks {
		secret.Erase()
	}
	return nil
}
