package snapshot_test

import (
	"encoding/binary"
	"hash/fnv"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/audit/snapshot"
)

// What somebody stores in an object is not taken for a page of the database.
func TestAnObjectIsNoMetaPage(t *testing.T) {
	folder := t.TempDir()
	d := create(t, folder, 4096)
	mark := make([]byte, 300<<10)
	for i := 0; i+8 <= len(mark); i += 8 {
		binary.BigEndian.PutUint64(mark[i:], 0xfeed000000000000|uint64(i))
	}
	find := func() (content []byte, start int) { // where the value begins
		content, err := os.ReadFile(d.path)
		require.NoError(t, err)
		for i := 0; i+16 < len(content); i++ {
			if binary.BigEndian.Uint64(content[i:]) == 0xfeed000000000000 && binary.BigEndian.Uint64(content[i+8:]) == 0xfeed000000000008 {
				return content, i
			}
		}
		t.Fatal("not found")
		return nil, 0
	}
	d.put(entry{"/registry/configmaps/tenant/trick", mark})
	_, start := find()
	const page = 65536
	require.Less(t, start, page)
	le := binary.LittleEndian
	put := func(at int, b []byte) { copy(mark[at-start:], b) }
	meta := make([]byte, 80)
	le.PutUint64(meta, 1)
	le.PutUint16(meta[8:], 4)
	b := meta[16:]
	le.PutUint32(b, 0xED0CDAED)
	le.PutUint32(b[4:], 2)
	le.PutUint32(b[8:], page)
	le.PutUint64(b[16:], 2) // root
	le.PutUint64(b[40:], 100)
	le.PutUint64(b[48:], 1<<40) // txid
	sum := fnv.New64a()
	sum.Write(b[:56])
	le.PutUint64(b[56:], sum.Sum64())
	put(page, meta)
	leaf := make([]byte, 64) // a root with the bucket "key", which is empty
	le.PutUint64(leaf, 2)
	le.PutUint16(leaf[8:], 2)
	le.PutUint16(leaf[10:], 1)
	le.PutUint32(leaf[16:], 1) // a bucket
	le.PutUint32(leaf[20:], 16)
	le.PutUint32(leaf[24:], 3)
	le.PutUint32(leaf[28:], 16)
	copy(leaf[32:], "key")
	le.PutUint64(leaf[35:], 3)
	put(2*page, leaf)
	empty := make([]byte, 16)
	le.PutUint64(empty, 3)
	le.PutUint16(empty[8:], 2)
	put(3*page, empty)

	// the same database with that value
	folder = t.TempDir()
	d = create(t, folder, 4096)
	d.put(entry{"/registry/configmaps/tenant/trick", mark})
	d.put(entry{"/registry/secrets/default/under-the-old-key", []byte("k8s:enc:kms:v2:old:x")})
	require.NoError(t, d.bolt.Close())
	f, err := snapshot.Open(t.Context(), d.path)
	require.NoError(t, err)
	defer f.Close()
	contents, err := f.Read(t.Context(), "")
	require.NoError(t, err)
	require.EqualValues(t, 2, contents.Total)
}
