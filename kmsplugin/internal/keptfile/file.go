// Package keptfile is one thing: a file of keys that is private, and is replaced as a whole or
// not at all, by any number of processes. What is in it is its user's business.
package keptfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/internal/filelock"
	"github.com/kube-atrest/atrest/kmsplugin/internal/filestamp"
)

// Errors of a file, beside fs.ErrNotExist and fs.ErrExist.
var (
	// ErrExposed: somebody else can read the file or put another in its place:
	// its mode, its owner, or a symbolic link. The error says what to run.
	ErrExposed = errors.New("not private")
	// ErrDamaged: the file is not what this program wrote.
	ErrDamaged = errors.New("damaged")
	// ErrNotDurable: the system could not say that the file is on the disk. It may well say
	// so when asked again, having dropped what it could not write.
	ErrNotDurable = errors.New("it may not be on the disk to stay")
	// ErrBusy: another process was changing the file for as long as ctx lasted.
	ErrBusy = errors.New("busy")
)

// MaxSize bounds a file in bytes.
const MaxSize = 4 << 20

// lockPoll is how often a lock that another process holds is tried again. It
// is held for a few writes to the disk.
const lockPoll = 10 * time.Millisecond

// A File is a file by its path. Its methods are safe for concurrent use, by any number of
// processes.
type File struct {
	path  string
	clock clock.Clock
	// Files is the system's. A test puts another in its place before the first call.
	Files FileSystem
}

// At names the file at path; it does not look at it. The clock paces the wait for the lock.
func At(path string, clock clock.Clock) *File {
	return &File{path: path, clock: clock, Files: system{}}
}

// Path is the path given to [At].
func (f *File) Path() string { return f.path }

// Read returns what is in the file, once that is on the disk to stay, and what a later look
// is compared with. With ErrNotDurable comes what was read.
func (f *File) Read() ([]byte, filestamp.Stamp, error) {
	data, info, err := readFile(f.Files, f.path)
	for n := 0; n < 100 && errors.Is(err, errReplaced); n++ {
		data, info, err = readFile(f.Files, f.path)
	}
	if err != nil && !errors.Is(err, ErrNotDurable) {
		return nil, filestamp.Stamp{}, err
	}
	return data, filestamp.Of(info), err
}

// Make makes the file, mode 0600, of what content returns. What is at the path already stays,
// and the error wraps fs.ErrExist. ctx bounds the wait for another process (ErrBusy).
func (f *File) Make(ctx context.Context, content func() ([]byte, error)) error {
	return f.locked(ctx, func() error {
		if _, err := os.Lstat(f.path); err == nil {
			return fmt.Errorf("%w: it is not replaced, as values may still need its keys", fs.ErrExist)
		}
		return f.write(content, publishNew)
	})
}

// Change puts what content returns in the place of the file, and leaves it if that is nil:
// content reads the file, while nobody else changes it. ctx as in Make.
func (f *File) Change(ctx context.Context, content func() ([]byte, error)) error {
	return f.locked(ctx, func() error { return f.write(content, publishNext) })
}

func (f *File) write(content func() ([]byte, error), publish func(FileSystem, string) error) error {
	data, err := content()
	if err != nil || data == nil {
		return err
	}
	defer clear(data)
	if len(data) > MaxSize {
		return fmt.Errorf("it would be larger than %d bytes, and not be read any more: it is left as it is", MaxSize)
	}
	if err := writeTemporary(f.Files, f.path, data); err != nil {
		return err
	}
	return publish(f.Files, f.path)
}

// Sweep removes what a writer that was killed has left: a copy of the keys. Where nothing may
// be written nothing was left.
func (f *File) Sweep() {
	if _, err := os.Lstat(Temporary(f.path)); err != nil {
		return
	}
	lock, err := filelock.TryAcquire(f.path + ".lock")
	if err != nil {
		return // somebody writes, or may who comes
	}
	_ = errors.Join(f.Files.Remove(Temporary(f.path)), lock.Release())
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

// Explain says which file, and what to do where the cause does not.
func (f *File) Explain(err error) error {
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
