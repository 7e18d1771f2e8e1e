package snapshot

import (
	"bytes"
	"encoding/binary"
)

// maxDepth is that of a tree with more pages than a file can have.
const maxDepth = 32

// tree walks one bucket. What it gives out is valid during the call alone.
type tree struct {
	pages   *pages
	visit   func(flags uint32, key, value []byte) error
	read    uint64 // pages, to notice when they lead in a circle
	last    []byte // key, as keys only ever go up
	buffers [maxDepth][]byte
}

// walk visits the elements below a page in the order of their keys.
func (t *tree) walk(id uint64, depth int) error {
	if depth == maxDepth || t.read > t.pages.count {
		return damaged("its pages lead in a circle")
	}
	t.read++
	page, err := t.pages.read(id, t.buffers[depth])
	if err != nil {
		return err
	}
	t.buffers[depth] = page
	return t.elements(page, id, depth)
}

// elements visits those of a page that is in memory.
func (t *tree) elements(page []byte, id uint64, depth int) error {
	le := binary.LittleEndian
	flags, count := le.Uint16(page[8:]), int(le.Uint16(page[10:]))
	if len(page) < pageHeader+count*elementSize {
		return damaged("page %d is too short for its %d elements", id, count)
	}
	for i := range count {
		at := pageHeader + i*elementSize
		element := page[at : at+elementSize]
		var err error
		switch flags {
		case flagBranch:
			err = t.walk(le.Uint64(element[8:]), depth+1)
		case flagLeaf:
			err = t.leaf(page[at:], id, element)
		default:
			err = damaged("page %d is of the unknown kind %#x", id, flags)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leaf visits one element; from is the page from the element on, where its
// position counts from.
func (t *tree) leaf(from []byte, id uint64, element []byte) error {
	le := binary.LittleEndian
	start, keySize, valueSize := uint64(le.Uint32(element[4:])), uint64(le.Uint32(element[8:])), uint64(le.Uint32(element[12:]))
	if start+keySize+valueSize > uint64(len(from)) {
		return damaged("an element of page %d ends behind it", id)
	}
	key := from[start : start+keySize]
	if t.last != nil && bytes.Compare(key, t.last) <= 0 {
		return damaged("the keys of page %d are not in order", id)
	}
	t.last = append(t.last[:0], key...)
	return t.visit(le.Uint32(element), key, from[start+keySize:start+keySize+valueSize])
}

// bucket visits what is in the bucket of a name.
func (p *pages) bucket(name string, visit func(key, value []byte) error) error {
	var header []byte
	root := &tree{pages: p, visit: func(flags uint32, key, value []byte) error {
		if flags == flagBucket && string(key) == name {
			header = bytes.Clone(value)
		}
		return nil
	}}
	if err := root.walk(p.root, 0); err != nil {
		return err
	}
	if len(header) < 16 {
		return damaged("it has no bucket %q: is it of etcd v3?", name)
	}
	t := &tree{pages: p, visit: func(_ uint32, key, value []byte) error { return visit(key, value) }}
	if id := binary.LittleEndian.Uint64(header); id != 0 {
		return t.walk(id, 0)
	}
	if len(header) < 16+pageHeader {
		return damaged("its bucket %q is cut off", name)
	}
	return t.inline(header[16:])
}

// inline visits a bucket that is so small that it stands within its parent.
func (t *tree) inline(page []byte) error {
	if binary.LittleEndian.Uint16(page[8:]) != flagLeaf {
		return damaged("a bucket within another is no leaf")
	}
	return t.elements(page, 0, 0)
}
