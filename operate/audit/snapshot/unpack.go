package snapshot

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/zstd"
)

// maxUnpacked bounds what a packed snapshot may hold. etcd advises against
// databases of more than 8 GiB.
const maxUnpacked = 64 << 30

// zstdWindow is the largest that zstd makes without being told to make a larger one,
// and bounds the memory that it takes to unpack.
const zstdWindow = 128 << 20

// packings are the forms in which snapshots are kept, by how they begin. A database
// begins with zeros, so none of them is mistaken for one.
var packings = []struct {
	name, magic string
	open        func(file io.ReaderAt, size int64) (io.ReadCloser, error)
}{
	{"gzip", "\x1f\x8b", openGzip},
	{"zip", "PK\x03\x04", openZip},
	{"zip", "PK\x05\x06", openZip}, // with nothing in it
	{"zstd", "\x28\xb5\x2f\xfd", openZstd},
}

// unpacked is the content of a file that is packed, in a temporary file that nobody
// else may read. It has no name any more where the system allows that, so that it is
// gone when the process is, however it ends. Of a file that is not packed it is nil.
func unpacked(ctx context.Context, file io.ReaderAt, size, limit int64) (*temporary, error) {
	begins := make([]byte, 4)
	if _, err := file.ReadAt(begins, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for _, packing := range packings {
		if !bytes.HasPrefix(begins, []byte(packing.magic)) {
			continue
		}
		content, err := packing.open(file, size)
		if err != nil {
			return nil, spoiled(packing.name, err)
		}
		defer content.Close()
		to, err := newTemporary()
		if err != nil {
			return nil, err
		}
		if err := to.fill(ctx, content, packing.name, min(limit, room(to.file.Name()))); err != nil {
			_ = to.remove()
			return nil, err
		}
		return to, nil
	}
	return nil, nil
}

// spoiled is the error of an archive that does not unpack. One of the disk stays
// what it is, as another copy would not help.
func spoiled(packing string, err error) error {
	var disk *fs.PathError
	switch {
	case errors.As(err, &disk), errors.Is(err, errZip), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return damaged("it is packed by %s, and cut off", packing)
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return errors.New("it was packed with zstd --long, which takes too much memory here: unpack it first: zstd -d --long=31")
	}
	return damaged("it is packed by %s, and does not unpack: %v", packing, err)
}

func openGzip(file io.ReaderAt, size int64) (io.ReadCloser, error) {
	return gzip.NewReader(io.NewSectionReader(file, 0, size))
}

func openZstd(file io.ReaderAt, size int64) (io.ReadCloser, error) {
	content, err := zstd.NewReader(io.NewSectionReader(file, 0, size),
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
	if err != nil {
		return nil, err
	}
	return content.IOReadCloser(), nil
}

// errZip begins what is said of an archive that is whole, and not what is looked for.
var errZip = errors.New("it is a zip archive")

// openZip opens the one file in it, as k3s and RKE2 write it.
func openZip(file io.ReaderAt, size int64) (io.ReadCloser, error) {
	archive, err := zip.NewReader(file, size)
	if err != nil {
		return nil, err
	}
	var files []*zip.File
	for _, f := range archive.File {
		if !f.FileInfo().IsDir() {
			files = append(files, f)
		}
	}
	const encrypted = 1 // of the flags
	switch {
	case len(files) == 0:
		return nil, fmt.Errorf("%w with no file in it: is that the right one?", errZip)
	case len(files) > 1:
		return nil, fmt.Errorf("%w of %d files, and nobody knows which is meant: unpack it, and name the one", errZip, len(files))
	case files[0].Flags&encrypted != 0:
		return nil, fmt.Errorf("%w with a password: unpack it, and name the file that was in it", errZip)
	}
	return files[0].Open()
}

// isTar reports whether a file is a tar archive, by what stands in it after the
// name of its first file and more.
func isTar(file io.ReaderAt) bool {
	const at, magic = 257, "ustar"
	got := make([]byte, len(magic))
	_, err := file.ReadAt(got, at)
	return err == nil && string(got) == magic
}

// temporary is a file that goes when it is closed.
type temporary struct{ file *os.File }

func newTemporary() (*temporary, error) {
	file, err := os.CreateTemp("", "atrest-snapshot-") // 0600
	if err != nil {
		return nil, fmt.Errorf("it is packed, and there is no place to unpack it: %w: name a folder with TMPDIR", err)
	}
	_ = os.Remove(file.Name()) // where an open file cannot be removed, it goes at the end
	return &temporary{file}, nil
}

func (t *temporary) remove() error {
	err := t.file.Close()
	_ = os.Remove(t.file.Name()) // it may be gone
	return err
}

// fill writes what is unpacked to the file, up to a limit.
func (t *temporary) fill(ctx context.Context, content io.Reader, packing string, limit int64) error {
	from := &reading{ctx: ctx, Reader: io.LimitReader(content, limit+1)}
	n, err := io.Copy(t.file, from)
	switch {
	case from.err != nil:
		return spoiled(packing, from.err)
	case err != nil:
		return fmt.Errorf("it is packed, and cannot be unpacked into %s: %w: name another folder with TMPDIR", os.TempDir(), err)
	case n > limit:
		return fmt.Errorf("it is packed, and unpacked more than the %d MiB that may be used of %s: name a larger folder with TMPDIR, or unpack it, if it is a snapshot at all",
			limit>>20, os.TempDir())
	}
	return nil
}
