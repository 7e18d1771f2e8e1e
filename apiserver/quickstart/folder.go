package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kube-atrest/atrest/internal/filelock"
)

// folder is where a run keeps its files.
type folder struct {
	// data outlives the run when it was asked for with --data.
	data string
	// scratch never does. It holds the sockets, whose paths must be short, and data when
	// nobody asked for it.
	scratch string
	// takenUp is whether an earlier run left an etcd in data.
	takenUp bool
}

// openFolder makes the folders. An empty data stands for one that is removed with the
// rest.
func openFolder(data string) (f folder, err error) {
	if f.scratch, err = os.MkdirTemp("", "atrest-"); err != nil {
		return folder{}, fmt.Errorf("make a temporary folder: %w", err)
	}
	if data == "" {
		data = filepath.Join(f.scratch, "data")
	}
	if f.data, err = filepath.Abs(data); err == nil {
		err = errors.Join(os.MkdirAll(f.logs(), 0o700), os.MkdirAll(filepath.Dir(f.keys()), 0o700))
	}
	if err != nil {
		return folder{}, errors.Join(fmt.Errorf("make the data folder: %w", err), f.remove())
	}
	_, missing := os.Stat(f.etcd())
	f.takenUp = missing == nil
	return f, nil
}

// remove takes away everything but data that was asked for.
func (f folder) remove() error { return os.RemoveAll(f.scratch) }

// kept reports whether data outlives the run.
func (f folder) kept() bool { return filepath.Dir(f.data) != f.scratch }

func (f folder) etcd() string   { return filepath.Join(f.data, "etcd") }
func (f folder) keys() string   { return filepath.Join(f.data, "keys", "keys.json") }
func (f folder) config() string { return filepath.Join(f.data, "encryption.yaml") }
func (f folder) logs() string   { return filepath.Join(f.data, "logs") }
func (f folder) log(of string) string {
	return filepath.Join(f.logs(), of+".log")
}

// lock keeps a second run out of the same data until the process ends or unlock is
// called.
func (f folder) lock() (unlock func() error, err error) {
	lock, err := filelock.TryAcquire(filepath.Join(f.data, "lock"))
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("%s is in use by another quickstart (%w); end that one or choose another --data", f.data, err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	return lock.Release, nil
}
