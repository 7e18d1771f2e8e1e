// Package wholefile replaces a file in one step: whoever reads it finds the old
// content or the new one, also after a crash. A new file is written beside it,
// made durable, and renamed.
//
// What a killed process left beside a file is removed by the next one that
// replaces a file of that folder, and is never read.
package wholefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Write makes path a file with this content that only its owner reads, of mode
// 0600, whether or not there was one.
func Write(path string, content []byte) error {
	next, err := create(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer discard(next) // which is gone if all went well
	if err := fill(next, content); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return err
	}
	return Settle(filepath.Dir(path))
}

// Create is Write where there is no file yet. If there is one the error wraps
// [fs.ErrExist], and it stays.
func Create(path string, content []byte) error {
	next, err := create(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer discard(next)
	if err := fill(next, content); err != nil {
		return err
	}
	if err := os.Link(next.Name(), path); err != nil {
		return err
	}
	return Settle(filepath.Dir(path))
}

// Exchange gives a file that is there another content, and leaves it its owner,
// its mode, its access control list and every other extended attribute, a label
// of SELinux among them. A symbolic link stays, and what it leads to is
// exchanged. Where [CanExchange] has an error, Exchange has it too, and nothing
// is written; so it is with [ErrChanged] if the content is not what it was.
func Exchange(path string, was, content []byte, otherwise string) error {
	real, next, err := twin(path, otherwise)
	if err != nil {
		return err
	}
	defer discard(next)
	if err := fill(next, content); err != nil {
		return err
	}
	if err := unchanged(real, was); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), real); err != nil {
		return fmt.Errorf("%w: %s cannot be exchanged: %s", err, real, otherwise)
	}
	return Settle(filepath.Dir(real))
}

// ErrChanged says that somebody gave a file another content in the meantime.
var ErrChanged = errors.New("somebody changed the file in the meantime, and it stays as it is")

// unchanged is an error if the content of a file is not what it was.
func unchanged(path string, was []byte) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	is, err := io.ReadAll(io.LimitReader(file, int64(len(was))+1))
	if err == nil && !bytes.Equal(is, was) {
		err = fmt.Errorf("%s: %w", path, ErrChanged)
	}
	return err
}

// CanExchange tells why [Exchange] would not exchange the file, and what else to
// do: otherwise. It tries all but the rename, with an empty file. A mount of the
// file that this process cannot see goes unnoticed.
func CanExchange(path, otherwise string) error {
	_, next, err := twin(path, otherwise)
	if err != nil {
		return err
	}
	discard(next)
	return nil
}

// twin is an empty file beside the one that path leads to, and like it in
// everything but the content.
func twin(path, otherwise string) (real string, next *os.File, err error) {
	real, err = filepath.EvalSymlinks(path)
	if err != nil {
		return "", nil, err
	}
	old, err := os.Lstat(real)
	if err != nil {
		return "", nil, err
	}
	if err := refuse(real, old, otherwise); err != nil {
		return "", nil, err
	}
	next, err = create(filepath.Dir(real))
	if err != nil {
		return "", nil, fmt.Errorf("%w: a new file has to be made beside the old one: allow it, or %s", err, otherwise)
	}
	if err := resemble(next, real, old); err != nil {
		discard(next)
		return "", nil, fmt.Errorf("the new file would not be like %s: %w: run as root, or %s", real, err, otherwise)
	}
	return real, next, nil
}

// resemble makes a new file what the old one is. Its mode is the last, as an
// access control list that was inherited would change it.
func resemble(next *os.File, path string, old os.FileInfo) error {
	if err := giveTo(next, old); err != nil {
		return err
	}
	if err := keepAttributes(next.Name(), path); err != nil {
		return err
	}
	if err := next.Chmod(old.Mode().Perm()); err != nil {
		return err
	}
	return sameAttributes(next.Name(), path)
}

// fill writes a file to the disk. It stays locked until it is discarded, after it has
// its name.
func fill(file *os.File, content []byte) error {
	_, err := file.Write(content)
	return errors.Join(err, file.Sync(), beforeRename(file))
}

// Settle makes last what was made, renamed or removed in a folder.
func Settle(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
