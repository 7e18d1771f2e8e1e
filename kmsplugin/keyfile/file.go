package keyfile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/filelock"
	"github.com/kube-atrest/atrest/kmsplugin/internal/filestamp"
)

// Errors of a key file, beside fs.ErrNotExist and fs.ErrExist.
var (
	// ErrExposed: somebody else can read the file or put another in its place:
	// its mode, its owner, or a symbolic link. The error says what to run.
	ErrExposed = errors.New("not private")
	// ErrDamaged: the file is not what this package wrote. It is left as it
	// is; restore it from a copy.
	ErrDamaged = errors.New("damaged")
	// ErrNotDurable: the system could not say that the file is on the disk. It may well say
	// so when asked again, having dropped what it could not write.
	ErrNotDurable = errors.New("it may not be on the disk to stay")
	// ErrFull: the file has 10,000 versions, as many as it may.
	ErrFull = errors.New("full")
	// ErrBusy: another process was changing the file for as long as ctx lasted.
	ErrBusy = errors.New("busy")
)

// lockPoll is how often a lock that another process holds is tried again. It
// is held for a few writes to the disk.
const lockPoll = 10 * time.Millisecond

// An Option changes one setting of [At].
type Option func(*File)

// WithClock sets the clock that dates new keys and paces the wait for the lock.
func WithClock(clock clock.Clock) Option {
	return func(f *File) { f.clock = clock }
}

// A File is a key file by its path; it holds no key. Its methods read or change
// what is on the disk at that moment. They are safe for concurrent use, by any
// number of processes.
type File struct {
	path   string
	clock  clock.Clock
	random io.Reader
	files  fileSystem
}

// At names the key file at path; it does not look at it.
func At(path string, options ...Option) *File {
	f := &File{path: path, clock: clock.RealClock{}, random: rand.Reader, files: osFiles{}}
	for _, option := range options {
		option(f)
	}
	return f
}

// Path is the path given to [At].
func (f *File) Path() string { return f.path }

// Create makes the file, mode 0600, with one new key. Its folder must exist and
// should be the owner's alone. If anything is at the path already, sound or
// not, it stays and the error wraps fs.ErrExist. ctx bounds the wait for
// another process that is changing the file (ErrBusy).
func (f *File) Create(ctx context.Context) (KeyInfo, error) {
	k, err := newKey(f.clock.Now(), f.random)
	if err != nil {
		return KeyInfo{}, f.explain(err)
	}
	return f.first(ctx, newKeyring(k.id, k))
}

// first makes the file where nothing is, and tells of the key that writes.
func (f *File) first(ctx context.Context, ring *keyring) (KeyInfo, error) {
	err := f.locked(ctx, func() error {
		if _, err := os.Lstat(f.path); err == nil {
			return fmt.Errorf("%w: it is not replaced, as values may still need its keys", fs.ErrExist)
		}
		return f.write(ring, publishNew)
	})
	if err != nil {
		return KeyInfo{}, f.explain(err)
	}
	return ring.info(ring.byID[ring.writes]), nil
}

// Stage adds a new version that unwraps and does not wrap: every node has to have it before
// one wraps with it. If the error comes after the file was replaced, the new version may be
// there: look with [File.List]. A [kmsplugin.Keeper] of the same file, in any process,
// notices at its next look. ctx as in Create.
func (f *File) Stage(ctx context.Context) (KeyInfo, error) {
	return f.change(ctx, func(now *keyring) (*keyring, key, error) { return f.extended(now) })
}

// Activate has the version write whose id or key_id begins so, or the newest if id is empty;
// it is no error if it does already. ctx as in Create.
func (f *File) Activate(ctx context.Context, id string) (KeyInfo, error) {
	return f.change(ctx, func(now *keyring) (*keyring, key, error) {
		k, err := now.find(id)
		return now.writing(k.id), k, err
	})
}

// Rotate is Stage and Activate in one step, for a file that one node alone has. All older
// versions stay readable.
func (f *File) Rotate(ctx context.Context) (KeyInfo, error) {
	return f.change(ctx, func(now *keyring) (*keyring, key, error) {
		next, k, err := f.extended(now)
		if err != nil {
			return nil, key{}, err
		}
		return next.writing(k.id), k, nil
	})
}

// Merge adds the versions of another key file, and returns the one that writes then: of the
// two files' the one created later. Once each of two nodes has merged the other's file,
// both have the same bytes. ctx as in Create.
func (f *File) Merge(ctx context.Context, other string) (KeyInfo, error) {
	theirs, err := At(other).read()
	if err != nil {
		return KeyInfo{}, err
	}
	return f.change(ctx, func(now *keyring) (*keyring, key, error) {
		next, err := now.merged(theirs)
		if err != nil {
			return nil, key{}, fmt.Errorf("%s: %w", other, err)
		}
		return next, next.byID[next.writes], nil
	})
}

// Import puts a copy of another key file in the place of this one, which may be missing, and
// returns the version that writes. It is refused if the other one lacks a version of
// this one. ctx as in Create.
func (f *File) Import(ctx context.Context, other string) (KeyInfo, error) {
	theirs, err := At(other).read()
	if err != nil {
		return KeyInfo{}, err
	}
	if _, err := os.Lstat(f.path); errors.Is(err, fs.ErrNotExist) {
		return f.first(ctx, theirs)
	}
	return f.change(ctx, func(now *keyring) (*keyring, key, error) {
		if err := errors.Join(theirs.forgets(now), theirs.spares(now)); err != nil {
			return nil, key{}, fmt.Errorf("%s does not go in its place: %w", other, err)
		}
		if err := theirs.hasAll(now); err != nil {
			return nil, key{}, fmt.Errorf("%s does not go in its place: %w: merge it instead", other, err)
		}
		return theirs, theirs.byID[theirs.writes], nil
	})
}

// List returns what may be told of the versions, oldest first.
func (f *File) List() ([]KeyInfo, error) {
	ring, err := f.read()
	if err != nil {
		return nil, err
	}
	return ring.infos(), nil
}

func (f *File) read() (*keyring, error) {
	ring, _, err := f.load()
	return ring, f.explain(err)
}

// load reads the file. With ErrNotDurable comes what was read.
func (f *File) load() (*keyring, filestamp.Stamp, error) {
	data, info, err := readFile(f.files, f.path)
	for n := 0; n < 100 && errors.Is(err, errReplaced); n++ {
		data, info, err = readFile(f.files, f.path)
	}
	if err != nil && !errors.Is(err, ErrNotDurable) {
		return nil, filestamp.Stamp{}, err
	}
	defer clear(data)
	ring, damage := decode(data)
	if damage != nil {
		return nil, filestamp.Stamp{}, fmt.Errorf("%w: %w; restore it from a copy, nothing here overwrites it", ErrDamaged, damage)
	}
	return ring, filestamp.Of(info), err
}

// extended has a new key more.
func (f *File) extended(now *keyring) (*keyring, key, error) {
	k, err := newKey(f.clock.Now(), f.random)
	if err != nil {
		return nil, key{}, err
	}
	next := now.with(k)
	return next, next.byID[k.id], nil
}

// change replaces the file by another, and tells of a key of it. What would be the same is
// left as it is.
func (f *File) change(ctx context.Context, change func(now *keyring) (*keyring, key, error)) (info KeyInfo, err error) {
	err = f.locked(ctx, func() error {
		now, _, err := f.load()
		if err != nil {
			return err
		}
		next, k, err := change(now)
		if err != nil {
			return err
		}
		info = next.info(k)
		if now.format == formatVersion && next.writes == now.writes && len(next.keys) == len(now.keys) && len(next.destroyed) == len(now.destroyed) {
			return nil
		}
		return f.write(next, publishNext)
	})
	if err != nil {
		return KeyInfo{}, f.explain(err)
	}
	return info, nil
}

func (f *File) write(ring *keyring, publish func(files fileSystem, path string) error) error {
	if len(ring.keys) > maxVersions {
		return fmt.Errorf("%w: it would have %d versions, more than %d: serve a new file under another provider name and migrate to it", ErrFull, len(ring.keys), maxVersions)
	}
	data, err := encode(ring)
	if err != nil {
		return err
	}
	defer clear(data)
	if err := writeTemporary(f.files, f.path, data); err != nil {
		return err
	}
	return publish(f.files, f.path)
}

// sweep removes what a writer that was killed has left: a copy of the keys. Where nothing may
// be written nothing was left.
func (f *File) sweep() {
	if _, err := os.Lstat(temporary(f.path)); err != nil {
		return
	}
	lock, err := filelock.TryAcquire(f.path + ".lock")
	if err != nil {
		return // somebody writes, or may who comes
	}
	_ = errors.Join(f.files.Remove(temporary(f.path)), lock.Release())
}

// locked runs change while no other process changes the file.
func (f *File) locked(ctx context.Context, change func() error) error {
	lock, err := f.lock(ctx)
	if err != nil {
		return err
	}
	return errors.Join(change(), lock.Release())
}

func (f *File) lock(ctx context.Context) (*filelock.Lock, error) {
	for {
		lock, err := filelock.TryAcquire(f.path + ".lock")
		if errors.Is(err, fs.ErrPermission) {
			return nil, f.notAllowed(err)
		}
		if !errors.Is(err, filelock.ErrHeld) {
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: another process is changing it: %w: try again, or look who holds %s.lock", ErrBusy, ctx.Err(), f.path)
		case <-f.clock.After(lockPoll):
		}
	}
}

// notAllowed says why nothing can be changed.
func (f *File) notAllowed(err error) error {
	name, self := f.path+".lock", os.Geteuid()
	if info, lost := os.Lstat(name); lost == nil && ownerOf(info) != self {
		return fmt.Errorf("%w: %s belongs to uid %d, who changes the file or was killed while at it: run as that user or, once nobody does, rm %s", err, name, ownerOf(info), name)
	}
	return fmt.Errorf("%w: a change puts a new file in the place of the old one: uid %d has to be let write to the folder %s", err, self, filepath.Dir(f.path))
}

// explain says which file, and what to do where the cause does not.
func (f *File) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, lost := os.Stat(filepath.Dir(f.path)); errors.Is(lost, fs.ErrNotExist) {
		return fmt.Errorf("key file %s: its folder does not exist: check the path, or mkdir -p -m 0700 %s: %w", f.path, filepath.Dir(f.path), err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("key file %s: restore it from a copy, or, if there never was one, create it: %w", f.path, err)
	}
	return fmt.Errorf("key file %s: %w", f.path, err)
}
