package interop

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
)

// A cluster that moves from one side to the other, and back, with the same file:
// every object is read, none is lost, and updates that change nothing write
// again only what the reader's own staleness asks for.
func TestAClusterMovesHereAndBack(t *testing.T) {
	kinds := everyKind(t)
	for _, k := range kinds {
		content := fileOf(first(k, kinds)...)
		for _, ours := range []side{ourCounter, ourSeed} {
			t.Run(fmt.Sprintf("%s, %s", k.name, ours.name), func(t *testing.T) {
				e := etcd{}
				for i, writer := range kinds { // a history of other providers
					s := theirSeed.start(t, fileOf(first(writer, kinds)...))
					at := fmt.Sprintf("/%d", i)
					data, err := s.TransformToStorage(t.Context(), []byte(at), value.DefaultContext(at))
					require.NoError(t, err)
					e[at] = data
				}
				kube := theirSeed.start(t, content)
				writes, err := settle([]server{kube}, e, 2)
				require.NoError(t, err)
				require.Equal(t, []int{len(kinds) - 1}, writes, "all but those of the first provider")

				moved := ours.start(t, content)
				writes, err = settle([]server{moved}, e, 1)
				require.NoError(t, err)
				require.Empty(t, writes, "nothing is written again because of the move")
				grow(t, e, moved)

				back := theirSeed.start(t, content)
				writes, err = settle([]server{back}, e, 2)
				require.NoError(t, err)
				if k.name == stored.KMSv2.Kind && ours.source != theirSeed.source {
					require.Equal(t, []int{len(kinds)}, writes, "of the other source type, once")
				} else {
					require.Empty(t, writes)
				}
				for at, data := range e {
					require.Equal(t, verdict{opened: true, value: at + "+"}, back.read(data, value.DefaultContext(at)))
				}
			})
		}
	}
}

// grow has a server change every object.
func grow(t *testing.T, e etcd, s server) {
	for at := range e {
		written, err := e.update(s, at, func(content string) string { return content + "+" })
		require.NoError(t, err)
		require.True(t, written)
	}
}

// A file with several entries: every resource has the same providers on both
// sides, wildcards and a resource named twice included, and a plugin that is
// named in several entries reads what each of them wrote.
func TestEveryResourceOfAFileCrosses(t *testing.T) {
	_, endpoint := startStrict(t, "1")
	gcm, box := keyed(stored.AESGCM, "key1", key("g", 32)), keyed(stored.Secretbox, "key1", key("s", 32))
	content := file(
		entry("secrets, events", kmsV2("a", endpoint), identity),
		entry("configmaps, pandas.awesome.bears.example", kmsV2("b", endpoint), gcm, identity),
		entry("secrets", gcm), // behind those of the first entry
		entry("'*.apps'", box, gcm, identity),
		entry("'*.'", gcm, identity),
		entry("'*.*'", identity, gcm),
	)
	var servers []server
	for _, s := range sides {
		servers = append(servers, s.start(t, content))
	}
	prefixes := map[schema.GroupResource]string{
		{Resource: "secrets"}:                                   stored.KMSv2.PrefixFor("a"),
		{Resource: "events"}:                                    stored.KMSv2.PrefixFor("a"),
		{Resource: "configmaps"}:                                stored.KMSv2.PrefixFor("b"),
		{Group: "awesome.bears.example", Resource: "pandas"}:    stored.KMSv2.PrefixFor("b"),
		{Group: "apps", Resource: "deployments"}:                stored.Secretbox.PrefixFor("key1"),
		{Resource: "pods"}:                                      stored.AESGCM.PrefixFor("key1"),
		{Group: "awesome.bears.example", Resource: "grizzlies"}: "",
		{Group: "batch", Resource: "jobs"}:                      "",
	}
	for resource, prefix := range prefixes {
		for _, writer := range servers {
			writer.Transformer = writer.resources.TransformerForResource(resource)
			data := writer.mustWrite(t, []byte("plain"))
			f, name, ok := stored.Identify(data)
			require.Equal(t, prefix != "", ok, "%v", resource)
			if ok {
				require.Equal(t, prefix, f.PrefixFor(name), "%v by %s", resource, writer.name)
			}
			for _, reader := range servers {
				reader.Transformer = reader.resources.TransformerForResource(resource)
				stale := f == stored.KMSv2 && !reader.ours && writer.source != reader.source
				require.NoError(t, crosses(writer, reader, []byte("plain"), stale), "%v", resource)
			}
		}
	}
}

// Values of one resource are not readable as another's, unless the file says so,
// and to both alike.
func TestAResourceReadsNothingThatItsProvidersDoNot(t *testing.T) {
	_, endpoint := startStrict(t, "1")
	content := file(
		entry("secrets", kmsV2("a", endpoint)),
		entry("configmaps", keyed(stored.AESGCM, "key1", key("g", 32))),
		entry("pods", identity),
	)
	theirs, ours := theirSeed.start(t, content), ourSeed.start(t, content)
	for _, from := range []string{"secrets", "configmaps", "pods", "services"} {
		data, err := ours.resources.TransformerForResource(schema.GroupResource{Resource: from}).TransformToStorage(t.Context(), []byte("plain"), here)
		require.NoError(t, err)
		for _, to := range []string{"secrets", "configmaps", "pods", "services"} {
			theirs.Transformer = theirs.resources.TransformerForResource(schema.GroupResource{Resource: to})
			ours.Transformer = ours.resources.TransformerForResource(schema.GroupResource{Resource: to})
			found, err := agree(theirs, ours, data, here)
			require.NoError(t, err, "%s as %s", from, to)
			require.Equal(t, none, found)
			plain := func(resource string) bool { return resource == "pods" || resource == "services" }
			require.Equal(t, from == to || plain(from) && plain(to), ours.read(data, here).opened, "%s as %s", from, to)
		}
	}
}

// Files that either refuses at the start are refused by both.
func TestFilesThatCannotBeUsedAreRefusedByBoth(t *testing.T) {
	_, endpoint := startStrict(t, "1")
	gcm := keyed(stored.AESGCM, "key1", key("g", 32))
	for name, content := range map[string]string{
		"no providers":         fileOf(),
		"a key too short":      fileOf(keyed(stored.AESGCM, "key1", key("g", 31))),
		"a masked resource":    file(entry("'*.*'", gcm), entry("secrets", gcm)),
		"a masked group":       file(entry("'*.apps'", gcm), entry("deployments.apps", gcm)),
		"two plugins one name": fileOf(kmsV2("a", endpoint), kmsV2("a", endpoint)),
		"a name with a colon":  fileOf(kmsV2("a:b", endpoint)),
		"no unix socket":       fileOf(kmsV2("a", "tcp://localhost:1")),
		"an unknown field":     fileOf(kind{yaml: "aesgcm: {keys: [], panda: 1}"}),
		"two kinds in one":     fileOf(kind{yaml: "{identity: {}, aesgcm: {keys: [{name: key1, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}"}),
	} {
		for _, s := range []side{theirSeed, ourCounter} {
			_, err := s.load(t, content)
			require.Error(t, err, "%s by %s", name, s.name)
		}
	}
}
