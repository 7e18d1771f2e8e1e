package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// stateFolder is where a rotation keeps what it takes to go on.
type stateFolder struct {
	path string
	lock *os.File
}

func (f *stateFolder) file() string { return filepath.Join(f.path, "rotation.json") }

// hold makes the folder, and keeps others from working with it.
func (f *stateFolder) hold() error {
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return fmt.Errorf("folder of the rotation: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(f.path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("folder of the rotation: %w", err)
	}
	if err := lock(file); err != nil {
		file.Close()
		return fmt.Errorf("folder of the rotation %s: %w", f.path, err)
	}
	f.lock = file
	return nil
}

func (f *stateFolder) release() { f.lock.Close() }

// load is the state that was stored last, if any was.
func (f *stateFolder) load() (s rotation.State, begun bool, err error) {
	data, err := readLimited(f.file(), nil, rotation.MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	if s, err = rotation.Decode(data); err != nil {
		return s, false, fmt.Errorf("%s: %w", f.file(), err)
	}
	return s, true, nil
}

func (f *stateFolder) save(s rotation.State) error {
	data, err := s.Encode()
	if err != nil {
		return err
	}
	return replaceFile(f.file(), data)
}
