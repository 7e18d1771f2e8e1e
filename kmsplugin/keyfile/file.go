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
)

// Errors of a key file, beside fs.ErrNotExist and fs.ErrExist.
var (
	// ErrExposed: somebody else can read the file or put another in its place:
	// its mode, its owner, or a symbolic link. The error says what to run.
	ErrExposed = errors.New("not private")
	// ErrDamaged: the file is not what this package wrote. It is left as it
	// is; restore it from a copy.
	ErrDamaged = errors.New("damaged")
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
	var created KeyInfo
	err := f.locked(ctx, func() error {
		if _, err := os.Lstat(f.path); err == nil {
			return fmt.Errorf("%w: it is not replaced, as values may still need its keys", fs.ErrExist)
		}
		var err error
		created, err = f.extend(nil, publishNew)
		return err
	})
	return created, f.explain(err)
}

// Rotate adds a new version, which wraps from now on; all older ones stay
// readable. A [Plugin] on the same file, in any process, notices at its next
// Status. If the error comes after the file was replaced, the new version may
// be there: look with [File.List]. ctx as in Create.
func (f *File) Rotate(ctx context.Context) (KeyInfo, error) {
	var created KeyInfo
	err := f.locked(ctx, func() error {
		ring, _, err := f.load()
		if err != nil {
			return err
		}
		created, err = f.extend(ring.keys, publishNext)
		return err
	})
	return created, f.explain(err)
}

// List returns what may be told of the versions, oldest first.
func (f *File) List() ([]KeyInfo, error) {
	ring, _, err := f.load()
	if err != nil {
		return nil, f.explain(err)
	}
	return ring.infos(), nil
}

// load reads the file. With errNotDurable comes what was read.
func (f *File) load() (*keyring, os.FileInfo, error) {
	data, info, err := readFile(f.files, f.path)
	if err != nil && !errors.Is(err, errNotDurable) {
		return nil, nil, err
	}
	keys, damage := decode(data)
	if damage != nil {
		return nil, nil, fmt.Errorf("%w: %w; restore it from a copy, nothing here overwrites it", ErrDamaged, damage)
	}
	return newKeyring(keys), info, err
}

// extend writes keys and a new one, and publishes the result.
func (f *File) extend(keys []key, publish func(files fileSystem, path string) error) (KeyInfo, error) {
	if len(keys) >= maxVersions {
		return KeyInfo{}, fmt.Errorf("%w: it has %d versions: serve a new file under another provider name and migrate to it", ErrFull, len(keys))
	}
	next, err := newKey(len(keys)+1, f.clock.Now(), f.random)
	if err != nil {
		return KeyInfo{}, err
	}
	ring := keyring{keys: append(keys[:len(keys):len(keys)], next)}
	data, err := encode(ring.keys)
	if err != nil {
		return KeyInfo{}, err
	}
	if err := writeTemporary(f.files, f.path, data); err != nil {
		return KeyInfo{}, err
	}
	if err := publish(f.files, f.path); err != nil {
		return KeyInfo{}, err
	}
	return ring.infos()[len(keys)], nil
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
