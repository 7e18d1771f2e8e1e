package keyfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
)

var _ kmsplugin.Service = (*Plugin)(nil)

// A Plugin serves the keys of a [File]. It looks at the file on each Status,
// which apiservers call at least once a minute, and when a Decrypt names a
// key_id that it does not know: a stat, and a read if anything changed. Between
// two looks nothing depends on the disk, and Encrypt uses the very key that
// Status announced.
//
// If the file goes missing, is damaged, becomes readable to others, lacks a version it
// had or does not reach the disk, then Status says so instead of [kmsplugin.Healthy] and
// Encrypt refuses, since a key that may not be there tomorrow must not wrap anything
// today. Decrypt goes on with the keys in memory.
//
// A Plugin is safe for concurrent use. It holds no descriptor and no goroutine.
type Plugin struct {
	file    *File
	looking sync.Mutex // one look at a time
	state   atomic.Pointer[state]
}

// A state is what the last look saw. It is read-only.
type state struct {
	ring    *keyring
	seen    os.FileInfo // the last file that could be read, whether or not ring is of it
	problem error       // why the file cannot be relied on now, or nil
}

// holdsFor reports whether another read of the file that seen identifies would
// tell nothing new. One that could not be made durable stays so: a second
// attempt may succeed without the bytes that the first one lost.
func (s *state) holdsFor(seen os.FileInfo) bool {
	return isSame(seen, s.seen) && (s.problem == nil || errors.Is(s.problem, errNotDurable))
}

// Open reads the file and returns the Service on it. The file must exist
// ([File.Create]), be private and be sound. If it cannot be made durable, as on
// a disk that takes no more writes, it is read with, and wraps nothing.
func (f *File) Open() (*Plugin, error) {
	ring, seen, err := f.load()
	if err = f.explain(err); err != nil && !errors.Is(err, errNotDurable) {
		return nil, err
	}
	p := &Plugin{file: f}
	p.state.Store(&state{ring: ring, seen: seen, problem: err})
	return p, nil
}

// Status looks at the file and reports whether it is sound and which key wraps.
func (p *Plugin) Status(ctx context.Context) (kmsplugin.Status, error) {
	current := p.look(ctx)
	answer := kmsplugin.Status{Healthz: kmsplugin.Healthy, KeyID: current.ring.newest().id}
	if current.problem != nil {
		answer.Healthz = healthz(current.problem)
	}
	return answer, nil
}

// healthz is the text of err within the limits: a rune is at most 4 bytes, and
// a path may hold any.
func healthz(err error) string {
	return fmt.Sprintf("%.*s", kmsplugin.MaxHealthz/4, strings.ToValidUTF8(err.Error(), "?"))
}

// Encrypt wraps under the newest key that the last look saw. It fails with
// kmsplugin.ErrUnavailable while the file cannot be relied on.
func (p *Plugin) Encrypt(_ context.Context, _ string, plaintext []byte) (kmsplugin.Sealed, error) {
	if len(plaintext) == 0 || len(plaintext) > kmsplugin.MaxPlaintext {
		return kmsplugin.Sealed{}, fmt.Errorf("key file %s: %w: plaintext has %d bytes, not 1 to %d", p.file.path, kmsplugin.ErrInvalid, len(plaintext), kmsplugin.MaxPlaintext)
	}
	current := p.state.Load()
	if current.problem != nil {
		return kmsplugin.Sealed{}, fmt.Errorf("%w: %w", kmsplugin.ErrUnavailable, current.problem)
	}
	newest := current.ring.newest()
	return kmsplugin.Sealed{Ciphertext: newest.kek.seal(plaintext, newest.id), KeyID: newest.id}, nil
}

// Decrypt unwraps what any version of the file wrapped. It fails with
// kmsplugin.ErrUnknownKey if the file has no such version, and with
// kmsplugin.ErrInvalid if the ciphertext is not what the version made.
func (p *Plugin) Decrypt(ctx context.Context, _ string, sealed kmsplugin.Sealed) ([]byte, error) {
	if len(sealed.Annotations) > 0 {
		return nil, fmt.Errorf("key file %s: %w: it carries annotations, which this plugin never makes: it was changed, or another plugin wrapped it", p.file.path, kmsplugin.ErrInvalid)
	}
	secret, ok := p.state.Load().ring.byID[sealed.KeyID]
	if !ok {
		current := p.look(ctx)
		if secret, ok = current.ring.byID[sealed.KeyID]; !ok {
			return nil, p.unknown(sealed.KeyID, current)
		}
	}
	plaintext, err := secret.open(sealed.Ciphertext, sealed.KeyID)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w: ciphertext of %d bytes under key_id %s does not authenticate: it was damaged, or wrapped by something else", p.file.path, kmsplugin.ErrInvalid, len(sealed.Ciphertext), sealed.KeyID)
	}
	return plaintext, nil
}

func (p *Plugin) unknown(keyID string, current *state) error {
	err := fmt.Errorf("key file %s: %w %.64q: none of its %d versions, the newest is %s; "+
		"if the file was made anew or restored from an old copy, bring back the one that has this version; "+
		"if it was rotated on another host, copy that host's file here; "+
		"if another plugin wrapped the value, serve that one under the provider's name",
		p.file.path, kmsplugin.ErrUnknownKey, keyID, len(current.ring.keys), current.ring.newest().id)
	if current.problem != nil {
		return fmt.Errorf("%w; and the file was not read again: %w", err, current.problem)
	}
	return err
}

// Rotate is [File.Rotate] on the file that p serves, and p uses the new key at
// once.
func (p *Plugin) Rotate(ctx context.Context) (KeyInfo, error) {
	info, err := p.file.Rotate(ctx)
	if err != nil {
		return KeyInfo{}, err
	}
	return info, p.look(ctx).problem
}

// look brings the state up to date with the file and returns it.
func (p *Plugin) look(ctx context.Context) *state {
	p.looking.Lock()
	defer p.looking.Unlock()
	current := p.state.Load()
	if seen, err := os.Lstat(p.file.path); err == nil && current.holdsFor(seen) {
		return current
	}
	next := current.after(p.file.load())
	next.problem = p.file.explain(next.problem)
	report(klog.FromContext(ctx), p.file.path, current, next)
	p.state.Store(next)
	return next
}

// after is the state that follows s once the file was read again. Keys once
// served are never given up for a file that lacks them.
func (s *state) after(ring *keyring, seen os.FileInfo, err error) *state {
	if errors.Is(err, errNotDurable) {
		return &state{ring: s.ring, seen: seen, problem: err}
	}
	if err != nil {
		return &state{ring: s.ring, seen: s.seen, problem: err}
	}
	if !ring.startsWith(s.ring) {
		return &state{ring: s.ring, seen: s.seen, problem: errors.New(
			"it no longer has every version that this process has served: restore the file that has them, newest " +
				s.ring.newest().id + "; to serve this one and leave values under them unreadable, restart")}
	}
	return &state{ring: ring, seen: seen}
}

func report(logger klog.Logger, path string, before, after *state) {
	if was, is := before.ring.newest().id, after.ring.newest().id; was != is {
		logger.Info("key file was rotated", "path", path, "keyID", is, "before", was)
	}
	switch {
	case before.problem == nil && after.problem != nil:
		logger.Error(after.problem, "key file cannot be relied on: reads go on, new keys are not wrapped", "path", path)
	case before.problem != nil && after.problem == nil:
		logger.Info("key file is sound again", "path", path)
	}
}
