package keyfile

import (
	"io"
	"io/fs"
	"os"
)

// A fileSystem is what changes a key file, or makes a change durable. It is
// handed in so that a test can cut the power, or have the disk fail, at any
// step. Errors are those of package os.
type fileSystem interface {
	OpenFile(name string, flag int, mode fs.FileMode) (openFile, error)
	Link(from, to string) error
	Rename(from, to string) error
	Remove(name string) error
	// SyncAll makes everything durable on the disk that the file is on.
	SyncAll(name string) error
}

// An openFile is a file or a folder.
type openFile interface {
	io.ReadWriteCloser
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	Sync() error
}

// osFiles is the file system of this machine.
type osFiles struct{}

func (osFiles) OpenFile(name string, flag int, mode fs.FileMode) (openFile, error) {
	file, err := os.OpenFile(name, flag, mode)
	if err != nil {
		return nil, err // not a *os.File that is nil
	}
	return file, nil
}

func (osFiles) Link(from, to string) error   { return os.Link(from, to) }
func (osFiles) Rename(from, to string) error { return os.Rename(from, to) }
func (osFiles) Remove(name string) error     { return os.Remove(name) }
func (osFiles) SyncAll(name string) error    { return syncAll(name) }
