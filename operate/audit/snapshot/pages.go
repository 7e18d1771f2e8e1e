package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// ErrDamaged: the file is not a whole database of etcd.
var ErrDamaged = errors.New("not a whole database of etcd")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
}

// Of the file format. All numbers are little-endian, as the machines are that
// etcd runs on.
const (
	magic         = 0xED0CDAED
	formatVersion = 2

	pageHeader  = 16 // id 8, flags 2, count 2, overflow 4
	metaSize    = 64 // magic 4, version 4, page size 4, flags 4, root 16, freelist 8, pages 8, txid 8, checksum 8
	checksumAt  = metaSize - 8
	elementSize = 16 // of a branch: position 4, key size 4, page 8; of a leaf: flags 4, position 4, key size 4, value size 4

	flagBranch = 0x01
	flagLeaf   = 0x02
	flagMeta   = 0x04
	flagBucket = 0x01 // of a leaf's element

	minPageSize = 1 << 9
	maxPageSize = 1 << 16
	// maxPage bounds a page with all that overflows it, which is one large value
	// or two. etcd takes requests of 1.5 MiB unless it is told otherwise.
	maxPage = 64 << 20
)

// pages is a database file as of its last transaction.
type pages struct {
	file io.ReaderAt
	size int64 // of the file
	meta
}

// meta is what a meta page says.
type meta struct {
	pageSize int64
	root     uint64 // the page of the root bucket
	count    uint64 // of pages in use
	txid     uint64
}

// openPages finds the last meta page that was written whole; there are two, so
// that one of them always is.
func openPages(file io.ReaderAt, size int64) (*pages, error) {
	m, err := lastMeta(file, size)
	if err != nil {
		return nil, err
	}
	m.count = min(m.count, uint64(size/m.pageSize))
	return &pages{file: file, size: size, meta: m}, nil
}

func lastMeta(file io.ReaderAt, size int64) (meta, error) {
	var last meta
	found := false
	consider := func(at int64) {
		if m, ok := readMeta(file, at); ok && (at == 0 || at == m.pageSize) && (!found || m.txid > last.txid) {
			last, found = m, true
		}
	}
	if consider(0); found { // it tells where the other one is: what lies elsewhere is somebody's object
		consider(last.pageSize)
		return last, nil
	}
	for at := int64(minPageSize); at <= maxPageSize && at < size; at *= 2 {
		consider(at)
	}
	if !found {
		return meta{}, damaged("neither of its two meta pages is valid")
	}
	return last, nil
}

func readMeta(file io.ReaderAt, at int64) (meta, bool) {
	var page [pageHeader + metaSize]byte
	if _, err := file.ReadAt(page[:], at); err != nil {
		return meta{}, false
	}
	b := page[pageHeader:]
	sum := fnv.New64a()
	sum.Write(b[:checksumAt])
	le := binary.LittleEndian
	m := meta{pageSize: int64(le.Uint32(b[8:])), root: le.Uint64(b[16:]), count: le.Uint64(b[40:]), txid: le.Uint64(b[48:])}
	ok := le.Uint16(page[8:]) == flagMeta && le.Uint32(b) == magic && le.Uint32(b[4:]) == formatVersion &&
		le.Uint64(b[checksumAt:]) == sum.Sum64() && minPageSize <= m.pageSize && m.pageSize <= maxPageSize
	return m, ok
}

// read gives the page id with all that overflows it, in buffer if that is
// large enough.
func (p *pages) read(id uint64, buffer []byte) ([]byte, error) {
	if id < 2 || id >= p.count {
		return nil, damaged("it refers to page %d of %d", id, p.count)
	}
	at := int64(id) * p.pageSize
	var header [pageHeader]byte
	if _, err := p.file.ReadAt(header[:], at); err != nil {
		return nil, unreadable(id, err)
	}
	if got := binary.LittleEndian.Uint64(header[:]); got != id {
		return nil, damaged("page %d says that it is page %d", id, got)
	}
	n := (int64(binary.LittleEndian.Uint32(header[12:])) + 1) * p.pageSize
	if n > maxPage || n > p.size-at {
		return nil, damaged("page %d of %d bytes ends behind the file", id, n)
	}
	if int64(cap(buffer)) < n {
		buffer = make([]byte, n)
	}
	buffer = buffer[:n]
	if _, err := p.file.ReadAt(buffer, at); err != nil {
		return nil, unreadable(id, err)
	}
	return buffer, nil
}

func unreadable(id uint64, err error) error {
	if errors.Is(err, io.EOF) {
		return damaged("it ends within page %d", id)
	}
	return fmt.Errorf("page %d: %w", id, err)
}
