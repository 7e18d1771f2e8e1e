package snapshot_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/audit/snapshot"
)

// database writes what etcd writes, with the library that it writes with.
type database struct {
	t        require.TestingT
	path     string
	bolt     *bolt.DB
	revision int64
}

func create(t require.TestingT, folder string, pageSize int) *database {
	path := filepath.Join(folder, "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: pageSize, NoSync: true, NoFreelistSync: true})
	require.NoError(t, err)
	d := &database{t: t, path: path, bolt: db, revision: 1}
	d.update(func(*bolt.Bucket) error { return nil })
	return d
}

func (d *database) update(change func(*bolt.Bucket) error) {
	require.NoError(d.t, d.bolt.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{"alarm", "auth", "cluster", "lease", "members", "meta"} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		bucket, err := tx.CreateBucketIfNotExists([]byte("key"))
		if err != nil {
			return err
		}
		bucket.FillPercent = 0.9 // as etcd has it
		return change(bucket)
	}))
}

// entry is a change of a key; a nil value deletes it.
type entry struct {
	key   string
	value []byte
}

// put writes each entry as a transaction of etcd, all in one of the database.
func (d *database) put(entries ...entry) {
	d.update(func(bucket *bolt.Bucket) error {
		for _, e := range entries {
			d.revision++
			name := binary.BigEndian.AppendUint64(nil, uint64(d.revision))
			name = binary.BigEndian.AppendUint64(append(name, '_'), 0)
			kv := &mvccpb.KeyValue{Key: []byte(e.key)}
			if e.value == nil {
				name = append(name, 't')
			} else {
				kv.Value, kv.ModRevision, kv.CreateRevision, kv.Version = e.value, d.revision, d.revision, 1
			}
			data, err := proto.Marshal(protoadapt.MessageV2Of(kv))
			if err != nil {
				return err
			}
			if err := bucket.Put(name, data); err != nil {
				return err
			}
		}
		return nil
	})
}

// file closes the database.
func (d *database) file() string {
	require.NoError(d.t, d.bolt.Close())
	return d.path
}

// withChecksum is a copy as etcdctl snapshot save writes it.
func withChecksum(t require.TestingT, path string) string {
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	sum := sha256.Sum256(content)
	require.NoError(t, os.WriteFile(path+".snapshot", append(content, sum[:]...), 0o600))
	return path + ".snapshot"
}

func open(t testing.TB, path string) *snapshot.File {
	t.Helper()
	f, err := snapshot.Open(t.Context(), path)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

func read(t require.TestingT, f *snapshot.File, prefix string) (values map[string]string, revision int64) {
	contents, err := f.Read(context.Background(), prefix)
	require.NoError(t, err)
	values = map[string]string{}
	for object, err := range contents.Objects {
		require.NoError(t, err)
		require.NotContains(t, values, object.Key, "each once")
		values[object.Key] = string(object.Value)
	}
	require.Len(t, values, int(contents.Total))
	return values, contents.Revision
}

func TestTheLastRevisionOfEachKeyIsRead(t *testing.T) {
	d := create(t, t.TempDir(), 0)
	d.put(entry{"/registry/a", []byte("1")}, entry{"/registry/b", []byte("2")}, entry{"/other", []byte("3")}, entry{"/registry/c", []byte("4")})
	d.put(entry{"/registry/a", []byte("5")}, entry{"/registry/b", nil}, entry{"/registry/d", nil}, entry{"/registry/empty", []byte{}})
	d.put(entry{"/registry/c", nil})
	d.put(entry{"/registry/c", []byte("back")}, entry{"/last", nil})
	for _, path := range []string{withChecksum(t, d.file()), d.path} {
		values, revision := read(t, open(t, path), "/registry/")
		require.Equal(t, map[string]string{"/registry/a": "5", "/registry/c": "back", "/registry/empty": ""}, values)
		require.Equal(t, int64(12), revision, "of the whole store")
	}
}

func TestLargeAndManyValues(t *testing.T) {
	d := create(t, t.TempDir(), 0)
	want := map[string]string{}
	for i := range 40 {
		var entries []entry
		for j := range 100 {
			e := entry{fmt.Sprintf("/registry/%d-%d", i, j), []byte(strings.Repeat("v", i*j))}
			entries = append(entries, e)
			want[e.key] = string(e.value)
		}
		d.put(entries...)
	}
	large := entry{"/registry/large", []byte(strings.Repeat("large", 1<<18))}
	d.put(large)
	want[large.key] = string(large.value)
	got, _ := read(t, open(t, d.file()), "/registry/")
	require.Equal(t, want, got)
}

// Whatever was written is read, in databases of any page size.
func TestWhatBoltWroteIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		folder, err := os.MkdirTemp("", "db")
		require.NoError(t, err)
		defer os.RemoveAll(folder)
		d := create(t, folder, rapid.SampledFrom([]int{1 << 10, 1 << 12, 1 << 14, 1 << 16}).Draw(t, "page size"))
		want := map[string]string{}
		for range rapid.IntRange(0, 6).Draw(t, "transactions") {
			var entries []entry
			for range rapid.IntRange(0, 30).Draw(t, "changes") {
				e := entry{key: rapid.StringMatching(`/[ab]/[a-d]{1,3}`).Draw(t, "key")}
				if rapid.IntRange(0, 3).Draw(t, "delete") > 0 {
					e.value = []byte(strings.Repeat("x", rapid.IntRange(0, 5000).Draw(t, "size")))
				}
				entries = append(entries, e)
				delete(want, e.key)
				if e.value != nil && strings.HasPrefix(e.key, "/a/") {
					want[e.key] = string(e.value)
				}
			}
			d.put(entries...)
		}
		f, err := snapshot.Open(context.Background(), d.file())
		require.NoError(t, err)
		defer f.Close()
		got, _ := read(t, f, "/a/")
		require.Equal(t, want, got)
	})
}

func TestTheSmallestAndTheLargestPagesAreRead(t *testing.T) {
	for _, pageSize := range []int{1 << 9, 1 << 16} {
		d := create(t, t.TempDir(), pageSize)
		d.put(entry{"/a", []byte("1")}, entry{"/b", []byte(strings.Repeat("long", 1000))})
		values, _ := read(t, open(t, d.file()), "/")
		require.Equal(t, map[string]string{"/a": "1", "/b": strings.Repeat("long", 1000)}, values, "pages of %d bytes", pageSize)
	}
}

func TestFind(t *testing.T) {
	d := create(t, t.TempDir(), 0)
	d.put(entry{"/a", []byte("1")}, entry{"/ab", []byte("2")}, entry{"/gone", []byte("3")}, entry{"/gone", nil})
	f := open(t, d.file())
	entry, err := f.Find(t.Context(), "/ab")
	require.NoError(t, err)
	require.Equal(t, audit.Entry{Key: "/ab", Value: []byte("2"), ModRevision: entry.ModRevision}, entry)
	first, err := f.Find(t.Context(), "/a")
	require.NoError(t, err)
	require.Equal(t, "1", string(first.Value))
	require.Less(t, first.ModRevision, entry.ModRevision)
	for _, key := range []string{"/", "/abc", "/gone"} {
		_, err = f.Find(t.Context(), key)
		require.ErrorIs(t, err, audit.ErrNotFound)
		require.ErrorContains(t, err, key)
	}
}

func TestAWalkCanBeStoppedAndCancelled(t *testing.T) {
	d := create(t, t.TempDir(), 0)
	d.put(entry{"/a", []byte("1")}, entry{"/b", []byte("2")})
	f := open(t, d.file())
	ctx, cancel := context.WithCancel(t.Context())
	contents, err := f.Read(ctx, "/")
	require.NoError(t, err)
	for range contents.Objects {
		break
	}
	cancel()
	for _, err := range contents.Objects {
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err = f.Read(ctx, "/")
	require.ErrorIs(t, err, context.Canceled)
	_, err = snapshot.Open(ctx, withChecksum(t, d.path))
	require.ErrorIs(t, err, context.Canceled)
}

func TestAFileThatChangesMeanwhileIsAnError(t *testing.T) {
	d := create(t, t.TempDir(), 0)
	d.put(entry{"/a", []byte("1")}, entry{"/b", []byte("2")})
	contents, err := open(t, d.file()).Read(t.Context(), "/")
	require.NoError(t, err)
	d.bolt, err = bolt.Open(d.path, 0o600, &bolt.Options{Timeout: time.Second}) // etcd starts
	require.NoError(t, err)
	defer d.bolt.Close()
	var last error
	for _, err := range contents.Objects {
		last = err
		if err == nil {
			d.put(entry{"/c", []byte("3")})
		}
	}
	require.ErrorIs(t, last, snapshot.ErrChanged)
	require.ErrorContains(t, last, "etcdctl snapshot save")
}

func TestFilesThatAreNoSnapshot(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	d := create(t, t.TempDir(), 0)
	d.put(entry{"/a", []byte("1")})
	good, err := os.ReadFile(withChecksum(t, d.file()))
	require.NoError(t, err)
	flipped := slices.Clone(good)
	flipped[len(flipped)/2] ^= 1

	for name, c := range map[string]struct {
		path string
		is   error
		text string
	}{
		"not there":       {filepath.Join(folder, "gone"), os.ErrNotExist, "gone"},
		"a folder":        {folder, nil, "member/snap/db"},
		"empty":           {write("empty", nil), snapshot.ErrDamaged, "take another copy"},
		"something else":  {write("text", []byte(strings.Repeat("text", 10_000))), snapshot.ErrDamaged, "take another copy"},
		"a bit is wrong":  {write("flipped", flipped), snapshot.ErrChecksum, "take another copy"},
		"cut to 32 bytes": {write("short", good[:32]), snapshot.ErrChecksum, ""},
	} {
		_, err := snapshot.Open(t.Context(), c.path)
		require.Error(t, err, name)
		require.ErrorContains(t, err, c.text, name)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, name)
		}
	}
}

func TestADatabaseOfSomethingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	f := open(t, path)
	_, err = f.Read(t.Context(), "/")
	require.ErrorIs(t, err, snapshot.ErrDamaged)
	require.ErrorContains(t, err, `no bucket "key"`)
	_, err = f.Find(t.Context(), "/a")
	require.ErrorIs(t, err, snapshot.ErrDamaged)
	require.NotErrorIs(t, err, audit.ErrNotFound)
}

func TestEntriesThatAreNotOfEtcd(t *testing.T) {
	for name, c := range map[string]struct{ key, value string }{
		"short key":      {"key", ""},
		"no separator":   {strings.Repeat("k", 17), ""},
		"another mark":   {"00000000_00000000x", ""},
		"no KeyValue":    {"00000000_00000000", "\xff\xff"},
		"a cut KeyValue": {"00000000_00000000", "\n\x10short"},
	} {
		d := create(t, t.TempDir(), 0)
		d.update(func(b *bolt.Bucket) error { return b.Put([]byte(c.key), []byte(c.value)) })
		_, err := open(t, d.file()).Read(t.Context(), "/")
		require.ErrorIs(t, err, snapshot.ErrDamaged, name)
	}
}

// damage reads a changed copy of a database to its end, one way or another.
func damage(content []byte) (map[string]string, error) {
	f, err := snapshot.Of(context.Background(), content)
	if err != nil {
		return nil, err
	}
	contents, err := f.Read(context.Background(), "")
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for object, err := range contents.Objects {
		if err != nil {
			return nil, err
		}
		values[object.Key] = string(object.Value)
	}
	return values, nil
}

// small is a database of a few pages with branches, leaves and an overflow.
func small(t testing.TB) []byte {
	d := create(t, t.TempDir(), 1<<10)
	var entries []entry
	for i := range 60 {
		entries = append(entries, entry{fmt.Sprintf("/registry/%02d", i), []byte(strings.Repeat("v", 60))})
	}
	d.put(append(entries, entry{"/registry/large", []byte(strings.Repeat("v", 5000))})...)
	content, err := os.ReadFile(d.file())
	require.NoError(t, err)
	return content
}

func TestEveryCutIsAnError(t *testing.T) {
	content := small(t)
	whole, err := damage(content)
	require.NoError(t, err)
	require.Len(t, whole, 61)
	for n := 0; n < len(content); n += 1 << 9 {
		got, err := damage(content[:n])
		if err == nil {
			require.Equal(t, whole, got, "nothing was lost: what was cut off is not in use")
		}
	}
}

// failing is a file that cannot be read at one place.
type failing struct {
	*bytes.Reader
	at    int64
	short bool // can a page's header be read still
}

var errDisk = errors.New("input/output error")

func (f failing) ReadAt(b []byte, at int64) (int, error) {
	if at == f.at && (len(b) > 16 || !f.short) {
		return 0, errDisk
	}
	return f.Reader.ReadAt(b, at)
}

// Another copy would not help against a disk that cannot be read.
func TestAnErrorOfTheDiskIsNotTakenForDamage(t *testing.T) {
	content := made(root(3), leaf(3, 0, []byte("\n\x02/a\x2a\x011"), first))
	for _, short := range []bool{false, true} {
		file := failing{bytes.NewReader(content), 3 * madePageSize, short}
		f, err := snapshot.OfReader(t.Context(), file, int64(len(content)))
		require.NoError(t, err)
		_, err = f.Find(t.Context(), "/a")
		require.ErrorIs(t, err, errDisk)
		require.ErrorContains(t, err, "page 3")
		require.NotErrorIs(t, err, snapshot.ErrDamaged)
	}
}

func TestPagesThatLeadInACircle(t *testing.T) {
	content := small(t)
	const pageSize = 1 << 10
	branches := 0
	for id := 2; id < len(content)/pageSize; id++ {
		page := content[id*pageSize:]
		if binary.LittleEndian.Uint16(page[8:]) != 1 {
			continue
		}
		branches++
		circle := slices.Clone(content)
		for i := range int(binary.LittleEndian.Uint16(page[10:])) {
			binary.LittleEndian.PutUint64(circle[id*pageSize+16+16*i+8:], uint64(id))
		}
		_, err := damage(circle)
		if err != nil {
			require.ErrorIs(t, err, snapshot.ErrDamaged)
			require.ErrorContains(t, err, "circle")
			return
		}
	}
	require.NotZero(t, branches)
	t.Fatal("no page with branches is in use")
}

// No content panics or takes for ever, and what is read can be read again.
func FuzzSnapshot(f *testing.F) {
	content := small(f)
	f.Add(content, uint16(0), uint64(0))
	f.Add(content[:4096], uint16(2060), uint64(1<<40))
	f.Fuzz(func(t *testing.T, content []byte, at uint16, with uint64) {
		content = slices.Clone(content)
		if int(at)+8 <= len(content) {
			binary.LittleEndian.PutUint64(content[at:], with)
		}
		first, err := damage(content)
		if err != nil {
			return
		}
		second, err := damage(content)
		require.NoError(t, err)
		require.True(t, maps.Equal(first, second))
	})
}

// Every byte of the database is changed in turn.
func TestDamageNeverPanics(t *testing.T) {
	content := small(t)
	for at := range content {
		content[at] = ^content[at]
		values, err := damage(content)
		require.True(t, err != nil || len(values) <= 61)
		content[at] = ^content[at]
	}
}

// etcd holds the lock of its database for as long as it runs.
func TestTheDatabaseOfARunningMemberIsRefused(t *testing.T) {
	d := create(t, t.TempDir(), 0)
	d.put(entry{"/a", []byte("1")})
	path := d.file()
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	_, err = snapshot.Open(t.Context(), path)
	require.ErrorIs(t, err, snapshot.ErrInUse)
	require.ErrorContains(t, err, "read the running etcd, or make a snapshot: etcdctl snapshot save")
	require.NoError(t, db.Close())
	open(t, path)
	db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	require.NoError(t, err, "it is not kept from etcd")
	require.NoError(t, db.Close())
}
