package snapshot_test

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/audit/snapshot"
)

const madePageSize = 1 << 10

var le = binary.LittleEndian

// made is a database of pages that no library would write. The first of them,
// page 2, is that of the root bucket.
func made(pages ...[]byte) []byte { return madeOf(uint64(len(pages)+2), pages...) }

// madeOf claims to have so many pages.
func madeOf(count uint64, pages ...[]byte) []byte {
	var content []byte
	for id := range uint64(2) {
		meta := le.AppendUint32(nil, 0xED0CDAED)
		meta = le.AppendUint32(meta, 2)
		meta = le.AppendUint32(meta, madePageSize)
		meta = le.AppendUint32(meta, 0)
		for _, n := range []uint64{2, 0, 0, count, id} { // root, its sequence, freelist, pages, txid
			meta = le.AppendUint64(meta, n)
		}
		sum := fnv.New64a()
		sum.Write(meta)
		content = append(content, page(id, 4, 0, le.AppendUint64(meta, sum.Sum64()))...)
	}
	return slices.Concat(append([][]byte{content}, pages...)...)
}

func page(id uint64, flags, count uint16, body []byte) []byte {
	b := le.AppendUint64(nil, id)
	b = le.AppendUint16(b, flags)
	b = le.AppendUint16(b, count)
	b = append(le.AppendUint32(b, 0), body...)
	return append(b, make([]byte, madePageSize-len(b))...)
}

// branch leads to pages, under one key for them all.
func branch(id uint64, to ...uint64) []byte {
	var body []byte
	for _, child := range to {
		body = le.AppendUint32(body, 0)
		body = le.AppendUint32(body, 0)
		body = le.AppendUint64(body, child)
	}
	return page(id, 1, uint16(len(to)), body)
}

// leaf holds keys, each with the same value.
func leaf(id uint64, flags uint32, value []byte, keys ...string) []byte {
	var body, data []byte
	for i, key := range keys {
		body = le.AppendUint32(body, flags)
		body = le.AppendUint32(body, uint32(16*(len(keys)-i)+len(data)))
		body = le.AppendUint32(body, uint32(len(key)))
		body = le.AppendUint32(body, uint32(len(value)))
		data = append(append(data, key...), value...)
	}
	return page(id, 2, uint16(len(keys)), append(body, data...))
}

// root leads to the bucket that begins at a page.
func root(to uint64) []byte {
	return leaf(2, 1, append(le.AppendUint64(nil, to), make([]byte, 8)...), "key")
}

const first, second = "00000001_00000000", "00000002_00000000"

func TestPages(t *testing.T) {
	entry := []byte("\n\x02/a\x2a\x011")
	var wide [][]byte // each page leads to the next twice, and the last one is empty
	for id := uint64(3); id < 30; id++ {
		wide = append(wide, branch(id, id+1, id+1))
	}
	for name, c := range map[string]struct {
		pages [][]byte
		want  string
	}{
		"as they should be":     {[][]byte{root(3), leaf(3, 0, entry, first, second)}, ""},
		"an empty leaf":         {[][]byte{root(3), leaf(3, 0, nil)}, ""},
		"keys in another order": {[][]byte{root(3), leaf(3, 0, entry, second, first)}, "not in order"},
		"a key twice":           {[][]byte{root(3), branch(3, 4, 4), leaf(4, 0, entry, first)}, "not in order"},
		"a page to itself":      {[][]byte{root(3), branch(3, 3)}, "circle"},
		"2^27 ways":             {append(append([][]byte{root(3)}, wide...), leaf(30, 0, nil)), "circle"},
		"another page's number": {[][]byte{root(3), leaf(7, 0, entry, first)}, "page 3 says that it is page 7"},
		"a page too far":        {[][]byte{root(9)}, "refers to page 9"},
		"a meta page":           {[][]byte{root(1)}, "refers to page 1"},
		"an unknown kind":       {[][]byte{root(3), page(3, 7, 1, nil)}, "unknown kind"},
		"too many elements":     {[][]byte{root(3), page(3, 2, 500, nil)}, "too short"},
		"an element too long":   {[][]byte{root(3), page(3, 2, 1, slices.Concat(make([]byte, 12), []byte("\xff\xff\xff\xff")))}, "ends behind it"},
		"a long overflow":       {[][]byte{root(3), overflowing(3)}, "ends behind the file"},
		"an inline branch":      {[][]byte{leaf(2, 1, slices.Concat(make([]byte, 16), branch(0, 2)[:32]), "key")}, "no leaf"},
		"half an inline bucket": {[][]byte{leaf(2, 1, make([]byte, 20), "key")}, "cut off"},
		"no bucket, but a key":  {[][]byte{leaf(2, 0, make([]byte, 32), "key")}, "no bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := damage(made(c.pages...))
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, snapshot.ErrDamaged)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, values)
		})
	}
}

// What a damaged file says of its own size does not make a walk longer.
func TestAFileHasNoMorePagesThanFitIntoIt(t *testing.T) {
	var wide [][]byte // 2^10 ways
	for id := uint64(3); id < 13; id++ {
		wide = append(wide, branch(id, id+1, id+1))
	}
	_, err := damage(madeOf(1<<40, append(append([][]byte{root(3)}, wide...), leaf(13, 0, nil))...))
	require.ErrorIs(t, err, snapshot.ErrDamaged)
	require.ErrorContains(t, err, "circle")
	_, err = damage(madeOf(1<<40, root(9)))
	require.ErrorIs(t, err, snapshot.ErrDamaged)
	require.ErrorContains(t, err, "refers to page 9 of 3")
}

// overflowing is a page that claims to go on for 4 GiB.
func overflowing(id uint64) []byte {
	p := page(id, 2, 0, nil)
	le.PutUint32(p[12:], 1<<22)
	return p
}
