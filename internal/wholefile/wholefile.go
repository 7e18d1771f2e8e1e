// Package wholefile replaces a file in one step: whoever reads it finds the old
// content or the new one, also after a crash. A new file is written beside it,
// made durable, and renamed.
package wholefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Write makes path a file with this content that only its owner reads, of mode
// 0600, whether or not there was one.
func Write(path string, content []byte) error {
	next, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(next.Name()) // which is gone if all went well
	if err := fill(next, content); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return err
	}
	return settle(filepath.Dir(path))
}

// Exchange gives a file that is there another content, and leaves it its mode
// and its owner. Where that cannot be done beside the file, the error says why,
// and what else to do: otherwise.
func Exchange(path string, content []byte, otherwise string) error {
	old, err := os.Stat(path)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".atrest-*")
	if err != nil {
		return fmt.Errorf("%w: a new file has to be made beside the old one: allow it, or %s", err, otherwise)
	}
	defer os.Remove(next.Name())
	defer next.Close()
	if err := next.Chmod(old.Mode().Perm()); err != nil {
		return err
	}
	if err := giveTo(next, old); err != nil {
		return fmt.Errorf("%w: the new file would have another owner than the old one: run as root, or %s", err, otherwise)
	}
	if err := fill(next, content); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return fmt.Errorf("%w: a file that is mounted by itself cannot be exchanged: %s", err, otherwise)
	}
	return settle(filepath.Dir(path))
}

// fill writes a file to the disk and closes it.
func fill(file *os.File, content []byte) error {
	_, err := file.Write(content)
	return errors.Join(err, file.Sync(), file.Close())
}

// settle makes a rename in a folder last.
func settle(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
