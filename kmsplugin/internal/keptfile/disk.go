package keptfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// errReplaced: a rename came between the open and the read.
var errReplaced = errors.New("it was replaced while it was read, again and again")

// errMounted: a rotation puts another file in the place of the old one, and a mount of the
// file itself goes on to show the old one, or keeps its place.
var errMounted = errors.New("it is mounted as a file, and so never shows what a rotation puts in its place: mount its folder instead")

// readFile returns the bytes of a key file that nobody but its owner, this
// process's user, can read, and what identifies them on the disk.
//
// It returns them only once they and the folder entry are durable: a key that
// wraps something before a power cut must be there after it. Whoever copied the
// file there will not have seen to that, and the process that renamed it there
// may still be waiting. With ErrNotDurable comes what was read.
func readFile(files FileSystem, path string) ([]byte, os.FileInfo, error) {
	// Without O_NONBLOCK a pipe in the file's place would block for ever.
	file, err := files.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, nil, fmt.Errorf("%w: it is a symbolic link, which a rotation would replace by a file: name the file itself", ErrExposed)
	}
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(checkMount(path, info), checkAccess(path, info)); err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > MaxSize {
		return nil, nil, fmt.Errorf("%w: it is larger than %d bytes", ErrDamaged, MaxSize)
	}
	// After the read: what is written between the two is seen as a change of info.
	if err := errors.Join(file.Sync(), syncFolder(files, path)); err != nil {
		return data, info, fmt.Errorf("%w: %w: look at the disk, then put a fresh copy of the file in its place", ErrNotDurable, err)
	}
	return data, info, nil
}

// checkMount refuses a file that has no name any more and yet is at its path.
func checkMount(path string, info os.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Nlink > 0 {
		return nil
	}
	if now, err := os.Lstat(path); err == nil && os.SameFile(now, info) {
		return errMounted
	}
	return errReplaced
}

func checkAccess(path string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: it is not a regular file (%s): choose another path", ErrExposed, info.Mode())
	}
	if owner, self := ownerOf(info), os.Geteuid(); owner != self {
		return fmt.Errorf("%w: it belongs to uid %d and this process runs as uid %d: run as its owner, or chown %d %s", ErrExposed, owner, self, self, path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%w: its mode %04o lets others in: chmod 600 %s, and rotate if others may have read it", ErrExposed, mode, path)
	}
	return nil
}

func ownerOf(info os.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}

// Temporary is where the next content of path is written first. A crash may
// leave it; the next writer, who holds the lock, removes it.
func Temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
}

// writeTemporary makes data durable under the temporary name, with mode 0600.
func writeTemporary(files FileSystem, path string, data []byte) error {
	name := Temporary(path)
	if err := files.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := files.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Chmod(0o600), file.Sync(), file.Close()); err != nil {
		return errors.Join(err, files.Remove(name))
	}
	return nil
}

// publishNew puts the temporary file at path, where nothing may be: unlike a
// rename, a link never replaces.
func publishNew(files FileSystem, path string) error {
	err := files.Link(Temporary(path), path)
	return errors.Join(err, files.Remove(Temporary(path)), syncFolder(files, path))
}

// publishNext puts the temporary file in the place of the one at path.
func publishNext(files FileSystem, path string) error {
	if err := files.Rename(Temporary(path), path); err != nil {
		if errors.Is(err, syscall.EBUSY) {
			err = fmt.Errorf("%w: %w", errMounted, err)
		}
		return errors.Join(err, files.Remove(Temporary(path)))
	}
	return syncFolder(files, path)
}

// syncFolder makes the entries of the folder of path durable. Where it cannot be opened, as
// one with mode 0711 by others than its owner, everything on the disk is.
func syncFolder(files FileSystem, path string) error {
	folder, err := files.OpenFile(filepath.Dir(path), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrPermission) {
		return files.SyncAll(path)
	}
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
