package rollout

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kube-atrest/atrest/internal/filelock"
	"github.com/kube-atrest/atrest/internal/wholefile"
	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Folder is where a rotation keeps what it takes to go on.
type Folder struct {
	Path string

	lock *filelock.Lock
}

func (f *Folder) file() string { return filepath.Join(f.Path, "rotation.json") }

// Checkpoints is where the rewriting of resources keeps how far it is.
func (f *Folder) Checkpoints() migrate.Folder {
	return migrate.Folder(filepath.Join(f.Path, "checkpoints"))
}

// copies is where the configuration files are kept as they were.
func (f *Folder) copies() copies { return copies(f.Path) }

// Hold makes the folder, and keeps others from working with it until Release.
func (f *Folder) Hold() error {
	if err := os.MkdirAll(f.Path, 0o700); err != nil {
		return fmt.Errorf("folder of the rotation: %w", err)
	}
	lock, err := filelock.TryAcquire(filepath.Join(f.Path, "lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return fmt.Errorf("folder of the rotation %s: another process works with it: wait for its end", f.Path)
	}
	if err != nil {
		return fmt.Errorf("folder of the rotation: %w", err)
	}
	f.lock = lock
	return nil
}

// Idle reports whether nobody works with the folder.
func (f *Folder) Idle() bool {
	if _, err := os.Stat(f.Path); errors.Is(err, fs.ErrNotExist) {
		return true
	}
	other := Folder{Path: f.Path}
	return other.Hold() == nil && other.Release() == nil
}

// Release lets others work with the folder.
func (f *Folder) Release() error { return f.lock.Release() }

// load is the state that was stored last, if any was.
func (f *Folder) load() (s rotation.State, begun bool, err error) {
	file, err := os.Open(f.file())
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, rotation.MaxSize+1))
	if err != nil {
		return s, false, err
	}
	if s, err = rotation.Decode(data); err != nil {
		return s, false, fmt.Errorf("%s: %w", f.file(), err)
	}
	return s, true, nil
}

// save replaces it in one step.
func (f *Folder) save(s rotation.State) error {
	data, err := s.Encode()
	if err != nil {
		return err
	}
	return wholefile.Write(f.file(), data)
}
