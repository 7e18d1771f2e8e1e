package tpm

import (
	"io"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
)

// SetRandom sets where new keys and their ids come from.
func SetRandom(s *Store, random io.Reader) { s.random = random }

// Decode reads a file, and Encode writes it.
var (
	Decode = func(data []byte) (*Ring, error) { return decode(data) }
	Encode = func(r *Ring) ([]byte, error) { return encode(r) }
)

// Ring is all keys of a file.
type Ring = ring

// Parts are the two parts of the key that writes.
func Parts(r *Ring) (public, private []byte) {
	k := r.ByID[r.Writes]
	return k.sealed.public, k.sealed.private
}

// Exchange has two keys change what is sealed as them, under their names.
func Exchange(r *Ring) *Ring {
	a, b := r.Keys[0], r.Keys[1]
	a.sealed, b.sealed, a.recovery, b.recovery = b.sealed, a.sealed, b.recovery, a.recovery
	r.Keys[0], r.Keys[1] = a, b
	return r
}

// FailToSync has the system say, when a file has taken its place, that it may not be on the disk
// to stay. FailToPublish has the file not take its place.
var (
	FailToSync    = func(s *Store) { s.disk.Files = &failing{FileSystem: s.disk.Files, folder: filepath.Dir(s.Path())} }
	FailToPublish = func(s *Store) { s.disk.Files = &failing{FileSystem: s.disk.Files, publish: true} }
)

type failing struct {
	keptfile.FileSystem
	folder  string
	publish bool
	placed  bool
}

func (f *failing) place(place func(from, to string) error, from, to string) error {
	if f.publish {
		return syscall.ENOSPC
	}
	f.placed = true
	return place(from, to)
}

func (f *failing) Rename(from, to string) error { return f.place(f.FileSystem.Rename, from, to) }
func (f *failing) Link(from, to string) error   { return f.place(f.FileSystem.Link, from, to) }

func (f *failing) OpenFile(name string, flag int, mode fs.FileMode) (keptfile.Opened, error) {
	if name == f.folder && f.placed {
		return nil, syscall.EIO
	}
	return f.FileSystem.OpenFile(name, flag, mode)
}
