package reload

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/kube-atrest/atrest/internal/hashed"
)

// maxSize is the largest file that is read, in bytes.
const maxSize = 1 << 20

// Read returns the content of the file at path, for the first generation,
// before there is a [Controller]. A file that is missing, not a regular file,
// empty or larger than 1 MiB is an error that names it.
func Read(path string) ([]byte, error) {
	l := lookAt(path)
	return l.content, l.err
}

// Hash names a content as kube-apiserver's metric last_config_info does: "sha256:" and
// the SHA-256 in hex.
func Hash(content []byte) string { return hashed.Name(content) }

// look is what one look at the file saw: a content or an error.
type look struct {
	content []byte
	hash    string
	err     error

	file    os.FileInfo
	writing bool // another process, or this one, has the file open for writing
}

// sameOutcome reports whether both looks saw the same content or the same error.
func (l look) sameOutcome(other look) bool {
	if l.err != nil || other.err != nil {
		return l.err != nil && other.err != nil && l.err.Error() == other.err.Error()
	}
	return l.hash == other.hash
}

// unmoved reports whether both looks saw the same file with nothing written to it
// in between.
func (l look) unmoved(other look) bool {
	if l.file == nil || other.file == nil {
		return l.file == nil && other.file == nil
	}
	return os.SameFile(l.file, other.file) &&
		l.file.Size() == other.file.Size() &&
		l.file.ModTime().Equal(other.file.ModTime())
}

func lookAt(path string) look {
	// Without O_NONBLOCK a named pipe at the path would block for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return look{err: unreadable(path, err)}
	}
	defer f.Close()
	l := look{}
	if l.file, err = f.Stat(); err != nil {
		return look{err: unreadable(path, err)}
	}
	if !l.file.Mode().IsRegular() {
		l.err = fmt.Errorf("%s is not a regular file: put the encryption config there, or change the path", path)
		return l
	}
	// Asked before reading: a writer that ended before has written all that is
	// read now, and one that begins later is seen by the next look.
	l.writing = openForWriting(f)
	l.content, l.err = readAll(path, f)
	if l.err == nil {
		l.hash = Hash(l.content)
	}
	return l
}

func readAll(path string, f *os.File) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	switch {
	case err != nil:
		return nil, unreadable(path, err)
	case len(content) == 0:
		return nil, fmt.Errorf("%s is empty: write the encryption config into it", path)
	case len(content) > maxSize:
		return nil, fmt.Errorf("%s is larger than the limit of %d bytes: an encryption config is a few thousand; check the path", path, maxSize)
	}
	return content, nil
}

// unreadable names the path once: an os error has it in its text already.
func unreadable(path string, err error) error {
	if cause := (*fs.PathError)(nil); errors.As(err, &cause) {
		err = cause.Err
	}
	return fmt.Errorf("cannot read %s: %w: check that it exists and that this process may read it", path, err)
}
