package tpm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/filestamp"
	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
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
	// unsynced is that what was seen may not be on the disk to stay. It stays so: a second attempt
	// may succeed without the bytes that the first one lost.
	unsynced error
	left     error // what has kept a key of it from being opened, or nil
	looked   time.Time
	problem  error // of the last look, or nil
	fresh    bool  // it is Open's, and nobody was told
}

// held are the keys that were unsealed. It is read-only.
type held struct {
	*ring
	keks map[string]kek.KEK // by id
	// proven are the ids of those that the TPM has opened as the ring has them sealed. What the file has for
	// the recovery key is looked at whenever one is opened, and so at each look.
	proven map[string]bool
	// failed is how often a key did not open since it last did, by id: those that failed less go first.
	failed map[string]int
}

// with is what is held of another ring.
func (h *held) with(next *ring) *held {
	after := &held{ring: next, keks: maps.Clone(h.keks), proven: map[string]bool{}, failed: map[string]int{}}
	maps.Copy(after.failed, h.failed)
	for id := range h.proven {
		if bytes.Equal(h.recovery, next.recovery) && h.ByID[id].sealedAlike(next.ByID[id]) {
			after.proven[id] = true
		}
	}
	return after
}

// Open unseals all keys, or as many as there is time for: those that are missing then are unsealed by
// the session's Versions, a part at each call, which tells so. It fails only where ctx ends: what
// else is wrong is told by Versions, too, and what was unsealed is read with.
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
// others, or without a version that was served, or the TPM is away, another one, does not
// open a key or has not come to it yet, that is the error, and what is in memory unwraps.
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
	if err == nil && len(had.keks) > 0 && filestamp.Of(info) == o.seen {
		switch {
		case o.unsynced != nil && o.left == nil:
			return o.unsynced
		case o.problem == nil && now.Sub(o.looked) < o.store.config.Check:
			return nil
		}
	}
	next, seen, unsynced := o.store.load()
	if next == nil {
		return unsynced
	}
	if seen == o.seen {
		unsynced = cmp.Or(o.unsynced, unsynced)
	}
	if err := next.HasAll(had.Ring); err != nil {
		return fmt.Errorf("%w, which this process has served: restore the file that has it; to serve this one and leave values unreadable, restart", err)
	}
	after, enough := had.with(next), o.store.enough(ctx)
	err = o.store.withTPM(ctx, func(c *chip) error { return after.fill(c, enough) })
	after.drop()
	// Without an error it is all of them.
	after.ring = next.like(keyring.New(next.Writes, after.opened()...))
	o.held.Store(after)
	if err == nil || unsynced != nil {
		o.seen, o.unsynced, o.left, o.looked = seen, unsynced, err, now
	}
	if err != nil && unsynced != nil {
		return fmt.Errorf("%w; %w", unsynced, err)
	}
	return cmp.Or(unsynced, err)
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

// enough tells when no other key is begun, so that what was done is there before ctx ends. It is asked
// before each.
func (s *Store) enough(ctx context.Context) func() bool {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() bool { return false }
	}
	begun, most, longest := s.config.Clock.Now(), time.Until(deadline), time.Duration(0)
	before := begun
	return func() bool {
		now := s.config.Clock.Now()
		longest, before = max(longest, now.Sub(before)), now
		took := now.Sub(begun)
		return took > most/4*3 || took+longest > most
	}
}

// fill unseals what is not held as it is sealed now, the newest first and what has failed before
// last. Where that is nothing it unseals what writes: one key of either is the proof. The error is
// the first one of a key; the others are tried, until enough says that there is no time, or the
// TPM does not answer: one there always is, another one than at the last look, so that it
// comes to an end.
func (h *held) fill(c *chip, enough func() bool) (first error) {
	if err := c.is(h.primary); err != nil {
		return err
	}
	closed := h.closed()
	if len(closed) == 0 {
		return h.open(c, h.ByID[h.Writes])
	}
	var moved [][]byte
	for tried, k := range closed {
		if moved != nil && slices.EqualFunc(k.pcrValues, moved, bytes.Equal) {
			continue // it was sealed for the same PCRs as one that they keep closed
		}
		if enough() && tried > 0 {
			late := fmt.Errorf("%w: TPM: %d of %d keys are opened so far, and it goes on: a slow one takes minutes for hundreds, fewer if what nothing needs any more is destroyed", kmsplugin.ErrUnavailable, len(h.proven), len(h.Keys))
			return cmp.Or(first, late)
		}
		err := h.open(c, k)
		if errors.Is(err, kmsplugin.ErrUnavailable) {
			return err // the others would wait for it, too
		}
		if errors.Is(err, kmsplugin.ErrKeyDisabled) {
			moved = k.pcrValues
		}
		first = cmp.Or(first, err)
	}
	return first
}

// closed are the keys to open, in the order in which they are tried.
func (h *held) closed() []key {
	var next []key
	for _, k := range slices.Backward(h.Keys) {
		if !h.proven[k.id] {
			next = append(next, k)
		}
	}
	slices.SortStableFunc(next, func(a, b key) int { return cmp.Compare(h.failed[a.id], h.failed[b.id]) })
	return next
}

// open unseals a key, and holds it against what is held of it.
func (h *held) open(c *chip, k key) error {
	h.failed[k.id]++
	unsealed, err := openKey(c, h.ring, k)
	if err != nil {
		return err
	}
	own, all, secret := h.proves(unsealed.auth, k), h.proves(unsealed.auth, h.Keys...), unsealed.KEK
	clear(unsealed.auth)
	if mine, known := h.keks[k.id]; known {
		defer secret.Erase()
		if !mine.Equal(secret) {
			return fmt.Errorf("%w: version %s is another key than the one that was served", ErrDamaged, k.id)
		}
	} else {
		h.keks[k.id] = secret
	}
	if own == nil {
		h.proven[k.id] = true
		delete(h.failed, k.id)
	}
	return all // it is read with
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
