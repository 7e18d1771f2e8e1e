package keptfile

import (
	"io"
	"io/fs"
	"os"
)

// A FileSystem is what changes a key file, or makes a change durable. It is
// handed in so that a test can cut the power, or have the disk fail, at any
// step. Errors are those of package os.
type FileSystem interface {
	OpenFile(name string, flag int, mode fs.FileMode) (Opened, error)
	Link(from, to string) error
	Rename(from, to string) error
	Remove(name string) error
	// SyncAll makes everything durable on the disk that the file is on.
	SyncAll(name string) error
}

// Opened is a file or a folder.
type Opened interface {
	io.ReadWriteCloser
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	Sync() error
}

// system is the file system of this machine.
type system struct{}

func (system) OpenFile(name string, flag int, mode fs.FileMode) (Opened, error) {
	file, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err // not a *os.File that is nil
	}
	return file, nil
}

func (system) Link(from, to string) error   { return os.Link(from, to) }
func (system) Rename(from, to string) error { return os.Rename(from, to) }
func (system) Remove(name string) error     { return os.Remove(name) }
func (system) SyncAll(name string) error    { return syncAll(name) }
