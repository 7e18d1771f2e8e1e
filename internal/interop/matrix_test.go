package interop

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
)

// sizes are lengths of values in bytes: around a block, and up to what etcd
// takes.
var sizes = []int{0, 1, 15, 16, 17, 1 << 10, 64 << 10, 3 << 19}

// cell is a server whose file has one kind of provider first.
type cell struct {
	server
	kind kind
}

// cells start a server of each side for each kind, which reads all others too.
func cells(t testing.TB, all []kind) []cell {
	var started []cell
	for _, k := range all {
		for _, s := range sides {
			started = append(started, cell{s.start(t, fileOf(first(k, all)...)), k})
		}
	}
	return started
}

// stale reports whether a value of the writer is stale to the reader: it is of
// another provider, or kube-apiserver reads the other source type.
func stale(writer, reader cell) bool {
	if writer.kind != reader.kind {
		return true
	}
	return writer.kind.name == stored.KMSv2.Kind && !reader.ours && writer.source != reader.source
}

// Every kind of provider, written by either side, is read by a server of either
// side that writes with every other kind, and stale as it should be.
func TestEveryProviderIsReadByEveryOther(t *testing.T) {
	all := cells(t, everyKind(t))
	for _, writer := range all {
		for _, reader := range all {
			require.NoError(t, crosses(writer.server, reader.server, []byte("plain"), stale(writer, reader)),
				"%s read where %s is first", writer.kind.name, reader.kind.name)
		}
	}
}

// The same verdict on the same value, in place and under another etcd key.
func TestEveryPairOfServersAgrees(t *testing.T) {
	all := cells(t, everyKind(t))
	for _, writer := range all {
		data := writer.mustWrite(t, []byte("plain"))
		for _, theirs := range all {
			for _, ours := range all {
				if theirs.ours || !ours.ours || theirs.kind != ours.kind {
					continue
				}
				for _, at := range []value.Context{here, there} {
					found, err := agree(theirs.server, ours.server, data, at)
					require.NoError(t, err, "written with %s", writer.kind.name)
					if found != none {
						require.Equal(t, sourceTypeAlone, found)
						require.Equal(t, stored.KMSv2.Kind, writer.kind.name)
						require.NotEqual(t, theirs.source, writer.source)
					}
				}
			}
		}
	}
}

func TestEverySizeCrosses(t *testing.T) {
	kinds := everyKind(t)
	kinds = append(kinds, keyed(stored.AESCBC, "k16", key("a", 16)), keyed(stored.AESCBC, "k24", key("a", 24)),
		keyed(stored.AESGCM, "k16", key("b", 16)), keyed(stored.AESGCM, "k24", key("b", 24)))
	for _, k := range kinds {
		var servers []cell
		for _, s := range sides {
			servers = append(servers, cell{s.start(t, fileOf(k)), k})
		}
		for _, size := range sizes {
			plaintext := bytes.Repeat([]byte{'v'}, size)
			for _, writer := range servers {
				for _, reader := range servers {
					require.NoError(t, crosses(writer.server, reader.server, plaintext, stale(writer, reader)), "%s", k.yaml)
				}
			}
		}
	}
}

// What is written is in the form that the table of formats has for the kind,
// whoever wrote it, and no byte longer on one side than on the other.
func TestStoredFormsAreThoseOfTheTable(t *testing.T) {
	lengths := map[string]int{}
	for _, c := range cells(t, everyKind(t)) {
		data := c.mustWrite(t, []byte("plain"))
		f, _, ok := stored.Identify(data)
		require.Equal(t, c.kind.encrypts(), ok)
		if !c.kind.encrypts() {
			require.Equal(t, "plain", string(data))
			continue
		}
		require.Equal(t, c.kind.name, f.Kind)
		form := f.Kind
		if f == stored.KMSv2 {
			form += fmt.Sprint(c.source)
		}
		if known, ok := lengths[form]; ok {
			require.Equal(t, known, len(data), "%s by %s", form, c.server.name)
		}
		lengths[form] = len(data)
	}
	require.Len(t, lengths, len(stored.Formats)+1, "KMS v2 in two forms")
}
