package interop

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
)

// rotation is two files, of which the second writes with a key that the first
// only reads with, and the other way round.
type rotation struct {
	name          string
	first, second string
	resource      schema.GroupResource
	bound         bool // to the etcd key
}

func rotations(t testing.TB) []rotation {
	var all []rotation
	for _, f := range []stored.Format{stored.AESCBC, stored.AESGCM, stored.Secretbox} {
		a, b := key("a", 32), key("b", 32)
		add := func(name string, first, second []kind) {
			all = append(all, rotation{f.Kind + ", " + name, fileOf(first...), fileOf(second...), secrets, f.BoundToKey})
		}
		add("one list of keys", []kind{keyed(f, "1", a, "2", b)}, []kind{keyed(f, "2", b, "1", a)})
		add("one provider each", []kind{keyed(f, "1", a), keyed(f, "2", b)}, []kind{keyed(f, "2", b), keyed(f, "1", a)})
		add("names that begin alike", []kind{keyed(f, "1", a, "1:1", b)}, []kind{keyed(f, "1:1", b, "1", a)})
		if f != stored.AESCBC { // which opens garbage under another key of the name once in 256 times
			add("two keys of one name", []kind{keyed(f, "1", a, "1", b)}, []kind{keyed(f, "1", b, "1", a)})
		}
	}
	folder := folderOf(t, "k8s.io/apiserver/pkg/server/options/encryptionconfig") + "/testdata/valid-configs/aes/"
	for _, name := range []string{"aes-cbc-multiple-keys", "aes-cbc-multiple-providers"} {
		first, err := os.ReadFile(filepath.FromSlash(folder + name + ".json"))
		require.NoError(t, err)
		second, err := os.ReadFile(filepath.FromSlash(folder + name + "-reversed.json"))
		require.NoError(t, err)
		all = append(all, rotation{name, string(first), string(second), schema.GroupResource{Resource: "ignored"}, false})
	}
	return all
}

func (r rotation) start(t testing.TB, s side, content string) server {
	started := s.start(t, content)
	started.Transformer = started.resources.TransformerForResource(r.resource)
	return started
}

// Before and after a rotation either side reads what either wrote, finds it
// stale exactly if it is of the key that is not written with, and opens it at
// another etcd key exactly if the format allows that.
func TestKeysOfTheFileRotate(t *testing.T) {
	for _, r := range rotations(t) {
		t.Run(r.name, func(t *testing.T) {
			for _, writer := range []side{theirSeed, ourCounter} {
				for _, reader := range []side{theirSeed, ourCounter} {
					before, after := r.start(t, writer, r.first), r.start(t, writer, r.second)
					readBefore, readAfter := r.start(t, reader, r.first), r.start(t, reader, r.second)
					for _, c := range []struct {
						writer, reader server
						stale          bool
					}{{before, readBefore, false}, {before, readAfter, true}, {after, readAfter, false}, {after, readBefore, true}} {
						require.NoError(t, crosses(c.writer, c.reader, content, c.stale))
						require.Equal(t, !r.bound, c.reader.read(c.writer.mustWrite(t, content), there).opened)
					}
				}
			}
		})
	}
}

// The servers of a fleet get the two files one after the other, in any order.
func TestAFleetSettlesAfterKeysOfTheFileRotated(t *testing.T) {
	for _, r := range rotations(t) {
		t.Run(r.name, func(t *testing.T) {
			theirs, ours := r.start(t, theirSeed, r.first), r.start(t, ourCounter, r.first)
			e := etcd{}
			for name, s := range map[string]server{"/theirs": theirs, "/ours": ours} {
				data, err := s.TransformToStorage(t.Context(), content, value.DefaultContext(name))
				require.NoError(t, err)
				e[name] = data
			}
			theirNext, ourNext := r.start(t, theirSeed, r.second), r.start(t, ourCounter, r.second)
			for _, half := range [][]server{{theirs, ourNext}, {theirNext, ours}} {
				_, err := settle(half, e, 5)
				require.Error(t, err, "they disagree for as long as one of them has the file before")
			}
			writes, err := settle([]server{theirNext, ourNext}, e, 2)
			require.NoError(t, err)
			require.LessOrEqual(t, len(writes), 1)
		})
	}
}
