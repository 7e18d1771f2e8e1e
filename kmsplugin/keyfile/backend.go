package keyfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/filestamp"
)

var _ kmsplugin.Backend = (*File)(nil)

// Config is how a [kmsplugin.Keeper] keeps a key file: a look takes a stat, so that it may look
// every second, and a change is whole when it is seen.
func Config() kmsplugin.Config { return kmsplugin.Config{Poll: time.Second, Steady: 1} }

// session serves a key file from memory: between two calls of Versions nothing depends on the
// disk.
type session struct {
	file    *File
	ring    atomic.Pointer[ring]
	looking sync.Mutex // one look at a time: a slow one would undo what a later one saw
	seen    filestamp.Stamp
	problem error // ErrNotDurable of what was seen, or nil
}

// Open removes what a writer that was killed left beside the file, and reads nothing yet. A
// file that is missing, damaged or not private is an error of the session's Versions.
func (f *File) Open(context.Context) (kmsplugin.Session, error) {
	f.disk.Sweep()
	s := &session{file: f}
	s.ring.Store(newRing(""))
	return s, nil
}

// Versions reads the file if anything was done to it. While the file is missing, damaged,
// open to others, not on the disk to stay or without a version that was served, that is the
// error, and what is in memory unwraps: a key that may not be there tomorrow must not wrap
// anything today. A file that cannot be made durable when it is first seen is read with.
func (s *session) Versions(context.Context) (kmsplugin.Versions, error) {
	if !s.looking.TryLock() {
		return s.ring.Load().Versions(), fmt.Errorf("%w: key file %s: the last look at it has not ended: does its disk answer?", kmsplugin.ErrUnavailable, s.file.Path())
	}
	defer s.looking.Unlock()
	if err := s.look(); err != nil {
		return s.ring.Load().Versions(), fmt.Errorf("%w: %w", kmsplugin.ErrUnavailable, s.file.disk.Explain(err))
	}
	return s.ring.Load().Versions(), nil
}

func (s *session) look() error {
	served := s.ring.Load()
	// What could not be made durable stays so: a second attempt may succeed without the
	// bytes that the first one lost.
	if now, err := os.Lstat(s.file.Path()); err == nil && len(served.Keys) > 0 && filestamp.Of(now) == s.seen {
		return s.problem
	}
	ring, seen, err := s.file.load()
	switch {
	case errors.Is(err, ErrNotDurable):
		if s.seen, s.problem = seen, err; len(served.Keys) == 0 {
			s.ring.Store(ring)
		} else {
			ring.erase()
		}
		return err
	case err != nil:
		return err
	}
	if err := ring.HasAll(served.Ring); err != nil {
		ring.erase()
		return fmt.Errorf("%w, which this process has served: restore the file that has it, or merge that one into this; to serve this one and leave values unreadable, restart", err)
	}
	s.ring.Store(ring)
	served.erase()
	s.seen, s.problem = seen, nil
	return nil
}

func (s *session) Wrap(_ context.Context, v kmsplugin.Version, dek, aad []byte) ([]byte, kmsplugin.Version, error) {
	k, err := s.key(v)
	if err != nil {
		return nil, kmsplugin.Version{}, err
	}
	return k.kek.Seal(dek, aad), k.Version(), nil
}

func (s *session) Unwrap(_ context.Context, v kmsplugin.Version, ciphertext, aad []byte) ([]byte, error) {
	k, err := s.key(v)
	if err != nil {
		return nil, err
	}
	dek, err := k.kek.Open(ciphertext, aad)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w: ciphertext of %d bytes under key_id %.64q does not authenticate: it was damaged, or wrapped by something else", s.file.Path(), kmsplugin.ErrInvalid, len(ciphertext), aad)
	}
	return dek, nil
}

func (s *session) key(v kmsplugin.Version) (key, error) {
	k, ok := s.ring.Load().ByID[v.Label]
	if !ok {
		return key{}, fmt.Errorf("key file %s: %w: it has no %s", s.file.Path(), kmsplugin.ErrUnknownKey, v)
	}
	return k, nil
}

// Close wipes the KEKs.
func (s *session) Close(context.Context) error {
	s.ring.Load().erase()
	return nil
}
