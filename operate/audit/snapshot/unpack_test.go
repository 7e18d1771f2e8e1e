package snapshot_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/audit/snapshot"
)

// packers pack as the tools do that snapshots are kept with.
var packers = map[string]func(t testing.TB, content []byte) []byte{
	"gzip": func(t testing.TB, content []byte) []byte {
		var b bytes.Buffer
		return closed(t, &b, gzip.NewWriter(&b), content)
	},
	"zstd": func(t testing.TB, content []byte) []byte {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b)
		require.NoError(t, err)
		return closed(t, &b, w, content)
	},
	"zip": func(t testing.TB, content []byte) []byte {
		return zipped(t, map[string][]byte{"folder/": nil, "folder/on-demand-node-1": content})
	},
}

func closed(t testing.TB, b *bytes.Buffer, w io.WriteCloser, content []byte) []byte {
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func zipped(t testing.TB, files map[string][]byte) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, content := range files {
		to, err := w.Create(name)
		require.NoError(t, err)
		_, err = to.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// saved is a snapshot of three objects, with its checksum.
func saved(t testing.TB) []byte {
	d := create(t, t.TempDir(), 0)
	d.put(entry{"/registry/a", []byte("1")}, entry{"/registry/b", []byte("2")}, entry{"/registry/c", []byte("3")})
	content, err := os.ReadFile(withChecksum(t, d.file()))
	require.NoError(t, err)
	return content
}

func written(t testing.TB, content []byte) string {
	path := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// emptyTemp is the folder for temporary files.
func emptyTemp(t *testing.T) string {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	return folder
}

func left(t testing.TB, folder string) int {
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	return len(entries)
}

// What it is called does not matter.
func TestAPackedSnapshotIsRead(t *testing.T) {
	content := saved(t)
	for name, pack := range packers {
		t.Run(name, func(t *testing.T) {
			folder := emptyTemp(t)
			f, err := snapshot.Open(t.Context(), written(t, pack(t, content)))
			require.NoError(t, err)
			if runtime.GOOS != "windows" {
				require.Zero(t, left(t, folder), "it would be left there by a kill -9")
			}
			values, _ := read(t, f, "/registry/")
			require.Equal(t, map[string]string{"/registry/a": "1", "/registry/b": "2", "/registry/c": "3"}, values)
			f.Close()
			require.Zero(t, left(t, folder))
		})
	}
}

func TestEveryCutOfAPackedSnapshotIsAnError(t *testing.T) {
	content := saved(t)
	for name, pack := range packers {
		t.Run(name, func(t *testing.T) {
			folder := emptyTemp(t)
			packed := pack(t, content)
			for n := 0; n < len(packed); n += 1 + len(packed)/200 {
				f, err := snapshot.Open(t.Context(), written(t, packed[:n]))
				require.ErrorIs(t, err, snapshot.ErrDamaged, "%d of %d bytes", n, len(packed))
				require.ErrorContains(t, err, "take another copy")
				require.Nil(t, f)
			}
			require.Zero(t, left(t, folder))
		})
	}
}

func TestABitInAPackedSnapshotIsAnErrorOrDoesNotMatter(t *testing.T) {
	content := saved(t)
	refused := 0
	for name, pack := range packers {
		packed := pack(t, content)
		for at := len(packed) / 4; at < len(packed)/2; at += 1 + len(packed)/50 {
			packed[at] ^= 0x10
			f, err := snapshot.Open(t.Context(), written(t, packed))
			packed[at] ^= 0x10
			if err == nil { // it is of a time, or the like
				values, _ := read(t, f, "/registry/")
				require.Len(t, values, 3)
				f.Close()
				continue
			}
			require.ErrorContains(t, err, "take another copy", "%s, byte %d", name, at)
			refused++
		}
	}
	require.Greater(t, refused, 20)
}

func TestWhatIsPackedIsASnapshot(t *testing.T) {
	content := saved(t)
	locked := zipped(t, map[string][]byte{"a": content})
	locked[6] |= 1                                                  // of the file
	locked[bytes.Index(locked, []byte("PK\x01\x02"))+8] |= 1        // of the directory
	tar := append(make([]byte, 257), "ustar\x0000 and so forth"...) // of its first file
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"zip of several":  {zipped(t, map[string][]byte{"a": content, "b": content}), "a zip archive of 2 files, and nobody knows which is meant: unpack it"},
		"zip of none":     {zipped(t, nil), "a zip archive with no file in it"},
		"zip of folders":  {zipped(t, map[string][]byte{"folder/": nil}), "a zip archive with no file in it"},
		"zip with a lock": {locked, "with a password"},
		"nothing":         {packers["gzip"](t, nil), "not a whole database of etcd"},
		"text":            {packers["zstd"](t, []byte("text")), "not a whole database of etcd"},
		"packed twice":    {packers["gzip"](t, packers["zstd"](t, content)), "not a whole database of etcd"},
		"tar":             {packers["gzip"](t, tar), "a tar archive: unpack it"},
	} {
		_, err := snapshot.Open(t.Context(), written(t, c.content))
		require.ErrorContains(t, err, c.want, name)
	}
}

// A small file may hold more than any disk has.
func TestWhatIsUnpackedHasABound(t *testing.T) {
	folder := emptyTemp(t)
	for name, pack := range packers {
		packed := pack(t, make([]byte, 3<<20))
		for limit, ok := range map[int64]bool{3<<20 - 1: false, 3 << 20: true, math.MaxInt64 - 1: true} {
			err := snapshot.Unpack(t.Context(), bytes.NewReader(packed), int64(len(packed)), limit)
			if ok {
				require.NoError(t, err, name)
				continue
			}
			require.ErrorContains(t, err, "more than the 2 MiB that may be used", name)
		}
	}
	require.Zero(t, left(t, folder))
}

func TestUnpackingCanBeCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, pack := range packers {
		_, err := snapshot.Open(ctx, written(t, pack(t, saved(t))))
		require.ErrorIs(t, err, context.Canceled, name)
		require.NotErrorIs(t, err, snapshot.ErrDamaged, name)
	}
}

func TestNowhereToUnpack(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "gone"))
	_, err := snapshot.Open(t.Context(), written(t, packers["gzip"](t, saved(t))))
	require.ErrorContains(t, err, "there is no place to unpack it")
	require.ErrorContains(t, err, "TMPDIR")
}

// Another copy would not help against a disk that cannot be read.
func TestAnErrorOfTheDiskIsNoDamageOfThePacking(t *testing.T) {
	for name, pack := range packers {
		packed := pack(t, saved(t))
		err := snapshot.Unpack(t.Context(), unreadable{bytes.NewReader(packed)}, int64(len(packed)), math.MaxInt64-1)
		require.ErrorIs(t, err, os.ErrPermission, name)
		require.NotErrorIs(t, err, snapshot.ErrDamaged, name)
	}
}

// unreadable is a file of which the beginning can be read alone.
type unreadable struct{ *bytes.Reader }

func (u unreadable) ReadAt(b []byte, at int64) (int, error) {
	if len(b) > 4 {
		return 0, &os.PathError{Op: "read", Path: "backup", Err: os.ErrPermission}
	}
	return u.Reader.ReadAt(b, at)
}
