package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/kube-atrest/atrest/operate/audit"
)

// Errors of a file, beside [ErrDamaged] and those of package os.
var (
	// ErrChecksum: the file is not what etcdctl saved.
	ErrChecksum = errors.New("the checksum at its end is another one")
	// ErrChanged: somebody wrote to the file while it was read.
	ErrChanged = errors.New("it changed while it was read, so an etcd has it open")
	// ErrInUse: etcd runs on the file, and writes to it.
	ErrInUse = errors.New("an etcd that runs has it open")
)

// File is an open snapshot. It is safe for concurrent use; close it.
type File struct {
	path  string
	file  io.ReaderAt
	close func() error
	size  int64 // without the checksum
}

var _ audit.Store = (*File)(nil)

// Open takes a file that etcdctl snapshot save wrote, whose checksum it
// verifies, or member/snap/db of a member's data, which has none. That of a
// member that runs on this machine is refused with [ErrInUse]. A file that is packed
// by gzip, zstd or, alone, by zip is unpacked into a temporary one, which is as large
// as the database: of 64 GiB at most, and of nine tenths of what is free there.
func Open(ctx context.Context, path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	f := &File{path: path, file: file, close: file.Close}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("it is a folder: in the data of a member the file is %s", filepath.Join(path, "member", "snap", "db"))
	}
	if err == nil && isLocked(file) {
		err = ErrInUse
	}
	if err == nil {
		err = f.open(ctx, file, info.Size())
	}
	if err != nil {
		f.Close()
		return nil, f.explain(err)
	}
	return f, nil
}

// open takes a file as it is, or what was packed in it.
func (f *File) open(ctx context.Context, file *os.File, size int64) error {
	content, err := unpacked(ctx, file, size, maxUnpacked)
	if err != nil {
		return err
	}
	if content != nil {
		_ = file.Close() // it was only read
		f.file, f.close = content.file, content.remove
		if size, err = content.file.Seek(0, io.SeekEnd); err != nil {
			return err
		}
	}
	if err = f.check(ctx, size); err != nil && isTar(f.file) {
		return errors.New("it is a tar archive: unpack it, and name the snapshot that was in it")
	}
	return err
}

// Close closes the file.
func (f *File) Close() { _ = f.close() }

// String names the file.
func (f *File) String() string { return "snapshot " + f.path }

// check finds out whether there is a checksum, and whether it is right.
func (f *File) check(ctx context.Context, size int64) error {
	f.size = size
	if f.size%minPageSize == sha256.Size {
		f.size -= sha256.Size
		if err := f.verify(ctx); err != nil {
			return err
		}
	}
	_, err := openPages(f.file, f.size)
	return err
}

// verify compares the file with the SHA-256 that etcdctl puts at its end.
func (f *File) verify(ctx context.Context) error {
	hash := sha256.New()
	content := io.NewSectionReader(f.file, 0, f.size)
	if _, err := io.Copy(hash, &reading{ctx: ctx, Reader: content}); err != nil {
		return err
	}
	var want [sha256.Size]byte
	if _, err := f.file.ReadAt(want[:], f.size); err != nil {
		return err
	}
	if !bytes.Equal(hash.Sum(nil), want[:]) {
		return ErrChecksum
	}
	return nil
}

// reading is a reader that can be called off, and keeps its error apart from that
// of who writes what it read.
type reading struct {
	ctx context.Context
	io.Reader
	err error
}

func (r *reading) Read(p []byte) (n int, err error) {
	if err = r.ctx.Err(); err == nil {
		n, err = r.Reader.Read(p)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

func (f *File) explain(err error) error {
	switch {
	case errors.Is(err, ErrInUse), errors.Is(err, ErrChanged):
		return fmt.Errorf("%s: %w: read the running etcd, or make a snapshot: etcdctl snapshot save", f, err)
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrChecksum):
		return fmt.Errorf("%s: %w: take another copy", f, err)
	}
	return fmt.Errorf("%s: %w", f, err)
}

// Read begins a walk over a prefix as of the file's last revision. It reads the
// file once, to find which revision of each key is the last, and the walk reads
// it again. In between it holds the keys, some 100 bytes each and their length.
// The objects come in the order of their revisions.
func (f *File) Read(ctx context.Context, prefix string) (*audit.Contents, error) {
	w, err := f.begin(ctx, prefix)
	if err != nil {
		return nil, err
	}
	return &audit.Contents{Revision: w.revision, Total: int64(len(w.live)), Objects: w.objects(ctx)}, nil
}

func (f *File) begin(ctx context.Context, prefix string) (*walk, error) {
	p, err := openPages(f.file, f.size)
	if err != nil {
		return nil, f.explain(err)
	}
	w := &walk{file: f, pages: p, prefix: []byte(prefix), live: map[string]revision{}}
	if err := w.index(ctx); err != nil {
		return nil, f.explain(err)
	}
	return w, nil
}

// Find is what stands under a key; the error wraps [audit.ErrNotFound] if nothing
// does.
func (f *File) Find(ctx context.Context, key string) (audit.Entry, error) {
	w, err := f.begin(ctx, key)
	if err != nil {
		return audit.Entry{}, err
	}
	for object, err := range w.objects(ctx) {
		if err != nil {
			return audit.Entry{}, err
		}
		if object.Key == key {
			return audit.Entry{Key: key, Value: bytes.Clone(object.Value), ModRevision: w.live[key].main}, nil
		}
	}
	return audit.Entry{}, fmt.Errorf("%s: %w: %q", f, audit.ErrNotFound, key)
}

// revision is when a key was written: a transaction, and a step of it.
type revision struct{ main, sub int64 }

type walk struct {
	file     *File
	pages    *pages
	prefix   []byte
	live     map[string]revision // the last revision of each key that is not deleted
	revision int64
}

// index finds the last revision of each key. Revisions come in their order.
func (w *walk) index(ctx context.Context) error {
	return w.each(ctx, func(at revision, deleted bool, key, _ []byte) error {
		w.revision = max(w.revision, at.main)
		switch {
		case !bytes.HasPrefix(key, w.prefix):
		case deleted:
			delete(w.live, string(key))
		default:
			w.live[string(key)] = at
		}
		return nil
	})
}

var errStop = errors.New("nobody wants more")

func (w *walk) objects(ctx context.Context) iter.Seq2[audit.Object, error] {
	return func(yield func(audit.Object, error) bool) {
		err := w.each(ctx, func(at revision, _ bool, key, value []byte) error {
			if last, ok := w.live[string(key)]; !ok || last != at {
				return nil
			}
			if !yield(audit.Object{Key: string(key), Value: value}, nil) {
				return errStop
			}
			return nil
		})
		if err == nil {
			err = w.unchanged()
		}
		if err != nil && !errors.Is(err, errStop) {
			yield(audit.Object{}, w.file.explain(err))
		}
	}
}

// unchanged fails if there was a transaction since the walk began.
func (w *walk) unchanged() error {
	now, err := lastMeta(w.file.file, w.file.size)
	if err != nil || now.txid != w.pages.txid {
		return ErrChanged
	}
	return nil
}

// The key of an entry is its revision: main, '_' and sub, and a mark if it is
// that of a deletion.
const (
	revisionSize = 8 + 1 + 8
	deletionMark = 't'
)

// each visits every revision of every key.
func (w *walk) each(ctx context.Context, visit func(at revision, deleted bool, key, value []byte) error) error {
	return w.pages.bucket("key", func(name, entry []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		deleted := len(name) == revisionSize+1 && name[revisionSize] == deletionMark
		if len(name) != revisionSize && !deleted || name[8] != '_' {
			return damaged("an entry of etcd has no revision")
		}
		at := revision{int64(binary.BigEndian.Uint64(name)), int64(binary.BigEndian.Uint64(name[9:]))}
		key, value, err := parseEntry(entry)
		if err != nil {
			return err
		}
		return visit(at, deleted, key, value)
	})
}

// The fields of etcd's mvccpb.KeyValue that matter here.
const (
	fieldKey   protowire.Number = 1
	fieldValue protowire.Number = 5
)

func parseEntry(b []byte) (key, value []byte, err error) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, nil, damaged("an entry of etcd cannot be decoded")
		}
		field := b[n:]
		n = protowire.ConsumeFieldValue(number, kind, field)
		if n < 0 {
			return nil, nil, damaged("an entry of etcd cannot be decoded")
		}
		b = field[n:]
		if kind != protowire.BytesType {
			continue
		}
		content, _ := protowire.ConsumeBytes(field)
		switch number {
		case fieldKey:
			key = content
		case fieldValue:
			value = content
		}
	}
	return key, value, nil
}
