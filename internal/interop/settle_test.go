package interop

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/stored"
)

// stages are the files of a fleet's history: from plaintext through rotations
// of keys in the file to KMS v1 and to KMS v2, whose key_id then changes twice. Each
// reads what all others wrote, as it has to be while they are rolled out.
func stages(t testing.TB) []string {
	var plugins []kind
	for _, keyID := range []string{"1", "2", "3"} {
		_, endpoint := startStrict(t, keyID)
		plugins = append(plugins, kmsV2("fleet", endpoint))
	}
	oldKey, bothKeys := keyed(stored.AESCBC, "key1", key("1", 32)), keyed(stored.AESCBC, "key2", key("2", 32), "key1", key("1", 32))
	gcm, v1 := keyed(stored.AESGCM, "key1", key("g", 32)), kmsV1("old", startV1(t))
	files := []string{
		fileOf(identity, bothKeys, gcm, v1, plugins[0]),
		fileOf(oldKey, keyed(stored.AESCBC, "key2", key("2", 32)), gcm, v1, plugins[0], identity),
		fileOf(bothKeys, gcm, v1, plugins[0], identity),
		fileOf(gcm, bothKeys, v1, plugins[0], identity),
		fileOf(v1, gcm, bothKeys, plugins[0], identity),
	}
	for _, p := range plugins {
		files = append(files, fileOf(p, v1, gcm, bothKeys, identity))
	}
	return files
}

// fleet is how many servers of which sides share one etcd.
var fleets = map[string][]side{
	"kube-apiserver":                {theirSeed, theirSeed},
	"atrest":                        {ourCounter, ourCounter},
	"atrest in both modes":          {ourCounter, ourSeed},
	"mixed":                         {theirSeed, ourCounter},
	"mixed, mode seed":              {theirSeed, ourSeed},
	"mixed with v1.28":              {theirDEK, ourCounter},
	"mixed with v1.28, mode seed":   {theirDEK, ourSeed},
	"mixed, three, in either order": {ourSeed, theirSeed, ourCounter},
}

// Whatever happened before, once all servers of a fleet have the same file and
// see the same key_id, updates that change nothing come to rest: every object
// is written at most once more, and once more still where kube-apiserver finds
// the other source type.
func TestAnyFleetSettles(t *testing.T) {
	files := stages(t)
	started := map[side][]server{}
	for _, s := range sides {
		for _, content := range files {
			started[s] = append(started[s], s.start(t, content))
		}
	}
	for name, fleet := range fleets {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				h := history{T: rt, fleet: fleet, started: started, at: make([]int, len(fleet)), etcd: etcd{}}
				h.run(len(files) - 1)
				writes, err := settle(h.servers(), h.etcd, 2)
				require.NoError(rt, err)
				if len(writes) > 0 {
					require.LessOrEqual(rt, writes[0], len(h.etcd)*writesToRest(fleet))
				}
			})
		})
	}
}

// writesToRest is how often an object is written at most before a fleet is at
// rest: by the first that finds it stale, and by a kube-apiserver that does not
// like how that one wrote.
func writesToRest(fleet []side) int {
	var theirs, other bool
	for _, s := range fleet {
		for _, o := range fleet {
			theirs = theirs || !s.ours
			other = other || s.source != o.source
		}
	}
	if theirs && other {
		return 2
	}
	return 1
}

// history is random operations of a fleet whose servers go through the stages,
// each at its own pace.
type history struct {
	*rapid.T
	fleet   []side
	started map[side][]server
	at      []int // the stage of each server
	etcd    etcd
}

func (h *history) servers() []server {
	var all []server
	for i, s := range h.fleet {
		all = append(all, h.started[s][h.at[i]])
	}
	return all
}

func (h *history) run(last int) {
	for range rapid.IntRange(5, 40).Draw(h.T, "operations") {
		i := rapid.IntRange(0, len(h.fleet)-1).Draw(h.T, "server")
		name := rapid.SampledFrom([]string{"/a", "/b", "/c"}).Draw(h.T, "object")
		switch rapid.IntRange(0, 3).Draw(h.T, "operation") {
		case 0:
			h.at[i] = min(h.at[i]+1, last)
		case 1:
			h.update(i, name, nothing)
		default:
			h.update(i, name, func(content string) string { return content + "." })
		}
	}
	for i := range h.at {
		h.at[i] = last
	}
}

// update makes an object if it is not there, else updates it.
func (h *history) update(i int, name string, change func(string) string) {
	s := h.servers()[i]
	if h.etcd[name] == nil {
		data, err := s.TransformToStorage(h.Context(), []byte("content"), value.DefaultContext(name))
		require.NoError(h.T, err)
		h.etcd[name] = data
		return
	}
	before := s.read(h.etcd[name], value.DefaultContext(name)).value
	_, err := h.etcd.update(s, name, change)
	require.NoError(h.T, err)
	require.Equal(h.T, change(before), s.read(h.etcd[name], value.DefaultContext(name)).value, "nothing is lost")
}

// In the mode that it begins with, this library leaves what kube-apiserver
// wrote as it is. kube-apiserver writes again, once, what this library wrote.
// In mode seed neither does.
func TestWhoRewritesWhoseValues(t *testing.T) {
	_, endpoint := startStrict(t, "1")
	content := fileOf(kmsV2("mixed", endpoint))
	for _, c := range []struct {
		writer, updater side
		rewrites        bool
	}{
		{theirSeed, ourCounter, false},
		{theirSeed, ourSeed, false},
		{theirDEK, ourCounter, false},
		{theirDEK, ourSeed, false},
		{ourCounter, ourSeed, false},
		{ourSeed, ourCounter, false},
		{ourSeed, theirSeed, false},
		{ourCounter, theirDEK, false},
		{ourCounter, theirSeed, true},
		{ourSeed, theirDEK, true},
		{theirDEK, theirSeed, true},
	} {
		t.Run(fmt.Sprintf("%s by %s", c.writer.name, c.updater.name), func(t *testing.T) {
			writer, updater := c.writer.start(t, content), c.updater.start(t, content)
			e := etcd{"/a": nil}
			data, err := writer.TransformToStorage(t.Context(), []byte("content"), value.DefaultContext("/a"))
			require.NoError(t, err)
			e["/a"] = data
			written, err := e.update(updater, "/a", nothing)
			require.NoError(t, err)
			require.Equal(t, c.rewrites, written)
			_, payload := payloadOf(e["/a"])
			if c.rewrites {
				require.Equal(t, c.updater.source, typeOf(payload))
			} else {
				require.Equal(t, data, e["/a"])
			}
			for _, s := range []server{updater, writer, updater} {
				if s.side == theirDEK && c.updater != theirDEK {
					continue // two versions of kube-apiserver go on for ever, whoever else is there
				}
				written, err = e.update(s, "/a", nothing)
				require.NoError(t, err)
				require.False(t, written, "by %s, the second time", s.name)
			}
		})
	}
}

// The two settle when the key_id changes under a server that runs, too; the
// other one is a kube-apiserver that has not seen it yet, and one that has.
func TestAFleetSettlesAfterTheKeyIDChangedInAServerThatRuns(t *testing.T) {
	for _, mode := range envelope.WriteModes() {
		r := run(t, mode)
		content := fileOf(kmsV2("fleet", r.plugin.Endpoint()))
		before := theirSeed.start(t, content)
		for _, name := range []string{"/a", "/b"} {
			data, err := before.TransformToStorage(t.Context(), []byte("content"), value.DefaultContext(name))
			require.NoError(t, err)
			r.etcd[name] = data
		}
		writes, err := settle([]server{r.server, before}, r.etcd, 1)
		require.NoError(t, err, "%v", writes)

		r.rotate("2")
		_, err = settle([]server{r.server, before}, r.etcd, 3)
		require.Error(t, err, "they disagree for as long as one of them has not seen the key_id")

		after := theirSeed.start(t, content)
		writes, err = settle([]server{r.server, after}, r.etcd, 2)
		require.NoError(t, err)
		require.Len(t, writes, 1)
		for name := range r.etcd {
			require.Equal(t, "2", r.keyIDOf(name))
		}
	}
}
