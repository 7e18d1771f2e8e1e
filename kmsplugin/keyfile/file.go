package keyfile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"k8s.io/utils/clock"

	"github.com/kube-atrest/atrest/kmsplugin/internal/filestamp"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
)

// Errors of a key file, beside fs.ErrNotExist and fs.ErrExist.
var (
	// ErrExposed: somebody else can read the file or put another in its place:
	// its mode, its owner, or a symbolic link. The error says what to run.
	ErrExposed = keptfile.ErrExposed
	// ErrDamaged: the file is not what this package wrote. It is left as it
	// is; restore it from a copy.
	ErrDamaged = keptfile.ErrDamaged
	// ErrNotDurable: the system could not say that the file is on the disk. It may well say
	// so when asked again, having dropped what it could not write.
	ErrNotDurable = keptfile.ErrNotDurable
	// ErrFull: the file has 10,000 versions, as many as it may.
	ErrFull = errors.New("full")
	// ErrBusy: another process was changing the file for as long as ctx lasted.
	ErrBusy = keptfile.ErrBusy
)

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
	disk   *keptfile.File
	clock  clock.Clock
	random io.Reader
}

// At names the key file at path; it does not look at it.
func At(path string, options ...Option) *File {
	f := &File{clock: clock.RealClock{}, random: rand.Reader}
	for _, option := range options {
		option(f)
	}
	f.disk = keptfile.At(path, f.clock)
	return f
}

// Path is the path given to [At].
func (f *File) Path() string { return f.disk.Path() }

// Create makes the file, mode 0600, with one new key. Its folder must exist and
// should be the owner's alone. If anything is at the path already, sound or
// not, it stays and the error wraps fs.ErrExist. ctx bounds the wait for
// another process that is changing the file (ErrBusy).
func (f *File) Create(ctx context.Context) (KeyInfo, error) {
	k, err := newKey(f.clock.Now(), f.random)
	if err != nil {
		return KeyInfo{}, f.disk.Explain(err)
	}
	return f.first(ctx, newRing(k.id, k))
}

// first makes the file where nothing is, and tells of the key that writes.
func (f *File) first(ctx context.Context, ring *ring) (KeyInfo, error) {
	err := f.disk.Make(ctx, func() ([]byte, error) { return f.encoded(ring) })
	if err != nil {
		return KeyInfo{}, f.disk.Explain(err)
	}
	return ring.info(ring.ByID[ring.Writes]), nil
}

// Stage adds a new version that unwraps and does not wrap: every node has to have it before
// one wraps with it. If the error comes after the file was replaced, the new version may be
// there: look with [File.List]. A [kmsplugin.Keeper] of the same file, in any process,
// notices at its next look. One with a [kmsplugin.Config.HoldDown] that starts while the version
// that writes is too young wraps with the newest before it that is not, a staged one too:
// the file does not tell which were activated. ctx as in Create.
func (f *File) Stage(ctx context.Context) (KeyInfo, error) {
	return f.change(ctx, func(now *ring) (*ring, key, error) { return f.extended(now) })
}

// Activate has the version write whose id or key_id begins so, or the newest if id is empty;
// it is no error if it does already. ctx as in Create.
func (f *File) Activate(ctx context.Context, id string) (KeyInfo, error) {
	return f.change(ctx, func(now *ring) (*ring, key, error) {
		k, err := now.Find(id)
		return now.writing(k.id), k, err
	})
}

// Rotate is Stage and Activate in one step, for a file that one node alone has. All older
// versions stay readable.
func (f *File) Rotate(ctx context.Context) (KeyInfo, error) {
	return f.change(ctx, func(now *ring) (*ring, key, error) {
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
	return f.change(ctx, func(now *ring) (*ring, key, error) {
		next, err := now.merged(theirs)
		if err != nil {
			return nil, key{}, fmt.Errorf("%s: %w", other, err)
		}
		return next, next.ByID[next.Writes], nil
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
	if _, err := os.Lstat(f.Path()); errors.Is(err, fs.ErrNotExist) {
		return f.first(ctx, theirs)
	}
	return f.change(ctx, func(now *ring) (*ring, key, error) {
		if err := errors.Join(theirs.Forgets(now.Ring), theirs.Spares(now.Ring)); err != nil {
			return nil, key{}, fmt.Errorf("%s does not go in its place: %w", other, err)
		}
		if err := theirs.HasAll(now.Ring); err != nil {
			return nil, key{}, fmt.Errorf("%s does not go in its place: %w: merge it instead", other, err)
		}
		return theirs, theirs.ByID[theirs.Writes], nil
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

func (f *File) read() (*ring, error) {
	ring, _, err := f.load()
	return ring, f.disk.Explain(err)
}

// load reads the file. With ErrNotDurable comes what was read.
func (f *File) load() (*ring, filestamp.Stamp, error) {
	data, seen, err := f.disk.Read()
	if err != nil && !errors.Is(err, ErrNotDurable) {
		return nil, filestamp.Stamp{}, err
	}
	defer clear(data)
	ring, damage := decode(data)
	if damage != nil {
		return nil, filestamp.Stamp{}, fmt.Errorf("%w: %w; restore it from a copy, nothing here overwrites it", ErrDamaged, damage)
	}
	return ring, seen, err
}

// extended has a new key more.
func (f *File) extended(now *ring) (*ring, key, error) {
	k, err := newKey(now.Time(f.clock.Now()), f.random)
	return &ring{Ring: now.With(k, now.Writes)}, k, err
}

// change replaces the file by another, and tells of a key of it. What would be the same is
// left as it is.
func (f *File) change(ctx context.Context, change func(now *ring) (*ring, key, error)) (info KeyInfo, err error) {
	err = f.disk.Change(ctx, func() ([]byte, error) {
		now, _, err := f.load()
		if err != nil {
			return nil, err
		}
		next, k, err := change(now)
		if err != nil {
			return nil, err
		}
		info = next.info(k)
		if now.format == formatVersion && next.Writes == now.Writes && len(next.Keys) == len(now.Keys) && len(next.Destroyed) == len(now.Destroyed) {
			return nil, nil
		}
		return f.encoded(next)
	})
	if err != nil {
		return KeyInfo{}, f.disk.Explain(err)
	}
	return info, nil
}

func (f *File) encoded(ring *ring) ([]byte, error) {
	if len(ring.Keys) > maxVersions {
		return nil, fmt.Errorf("%w: it would have %d versions, more than %d: serve a new file under another provider name and migrate to it", ErrFull, len(ring.Keys), maxVersions)
	}
	return encode(ring)
}
