package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/internal/wholefile"
)

// ErrNotErased says that a bundle is in its folder, in effect and durable, but that what
// was there before is not gone.
var ErrNotErased = errors.New("the bundle is written, and the former one is not erased")

const (
	// written begins the name of each folder of files that is made here.
	written = "..bundle-"
	// nextLink is the link that is about to be the current one.
	nextLink = "..next"
)

// WriteFolder makes the folder hold this bundle, and makes it if it is not there: files
// of mode 0600, replaced all at once by a rename, and durable when it returns. What was
// there before is overwritten and removed; if that fails the error wraps
// [ErrNotErased]. With any other error the folder holds the former bundle or this one,
// whole. One process at a time may write a folder. A folder with anything else in it is
// refused.
func (b *Bundle) WriteFolder(path string) error {
	if err := b.replaceIn(path); err != nil {
		return fmt.Errorf("folder %s: %w", path, err)
	}
	return nil
}

func (b *Bundle) replaceIn(path string) error {
	if err := makeFolder(path); err != nil {
		return err
	}
	if err := sweep(path); err != nil { // what a killed process left may fill the disk
		return err
	}
	next, err := os.MkdirTemp(path, written)
	if err != nil {
		return err
	}
	if err := b.fill(next); err != nil {
		return errors.Join(err, eraseFolder(next))
	}
	if err := link(path, filepath.Base(next)); err != nil {
		return errors.Join(err, eraseFolder(next))
	}
	if err := wholefile.Settle(path); err != nil {
		return err
	}
	if err := sweep(path); err != nil {
		return fmt.Errorf("%w: %w", ErrNotErased, err)
	}
	return nil
}

// makeFolder makes a folder that is not there, and refuses one that holds anything else.
func makeFolder(path string) error {
	err := os.Mkdir(path, 0o700)
	if err == nil {
		return wholefile.Settle(filepath.Dir(path))
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); name != current && name != nextLink && !strings.HasPrefix(name, written) {
			return fmt.Errorf("it has %.128q in it, which is none of the files that are written here: name a folder of its own", name)
		}
	}
	return nil
}

func (b *Bundle) fill(folder string) error {
	data := b.Encode()
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if err := writeFile(filepath.Join(folder, name), data[name]); err != nil {
			return err
		}
	}
	return wholefile.Settle(folder)
}

func writeFile(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}

// link makes a folder of files the current one.
func link(path, target string) error {
	next := filepath.Join(path, nextLink)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, next); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(path, current))
}

// sweep erases every folder of files but the current one.
func sweep(path string) error {
	inUse, err := os.Readlink(filepath.Join(path, current))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if name := entry.Name(); entry.IsDir() && strings.HasPrefix(name, written) && name != inUse {
			errs = append(errs, eraseFolder(filepath.Join(path, name)))
		}
	}
	return errors.Join(errs...)
}

// eraseFolder overwrites the files of a folder, and removes it even where they cannot be
// overwritten.
func eraseFolder(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			errs = append(errs, eraseFile(filepath.Join(path, entry.Name())))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(path))...)
}

// eraseFile overwrites a file where it lies: on a disk that writes elsewhere, as flash
// and some file systems do, the old bytes stay until that reuses them.
func eraseFile(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil {
		_, err = file.Write(make([]byte, info.Size()))
	}
	return errors.Join(err, file.Sync(), file.Close())
}
