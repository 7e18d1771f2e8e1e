package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
)

// brokenReader reads in a way of its own.
type brokenReader struct {
	value.Transformer
	read func(value.Transformer, []byte, value.Context) ([]byte, bool, error)
}

func (b brokenReader) TransformFromStorage(_ context.Context, data []byte, at value.Context) ([]byte, bool, error) {
	return b.read(b.Transformer, data, at)
}

func open(tr value.Transformer, data []byte, at value.Context) ([]byte, bool, error) {
	return tr.TransformFromStorage(context.Background(), data, at)
}

// or reads data, and what else made of it if that fails.
func or(other func([]byte) []byte) func(value.Transformer, []byte, value.Context) ([]byte, bool, error) {
	return func(tr value.Transformer, data []byte, at value.Context) ([]byte, bool, error) {
		out, stale, err := open(tr, data, at)
		if err != nil && len(data) > 0 {
			return open(tr, other(bytes.Clone(data)), at)
		}
		return out, stale, err
	}
}

// misreadings are mistakes of a reader.
var misreadings = map[string]func(value.Transformer, []byte, value.Context) ([]byte, bool, error){
	"takes a byte too many": or(func(d []byte) []byte { return d[:len(d)-1] }),
	"ignores the last bit":  or(func(d []byte) []byte { d[len(d)-1] ^= 1; return d }),
	"ignores case in the prefix": func(tr value.Transformer, data []byte, at value.Context) ([]byte, bool, error) {
		n := min(len(stored.Reserved), len(data))
		return open(tr, append(bytes.ToLower(data[:n]), data[n:]...), at)
	},
	"hands out ciphertext": func(tr value.Transformer, data []byte, at value.Context) ([]byte, bool, error) {
		if out, stale, err := open(tr, data, at); err == nil {
			return out, stale, nil
		}
		return data, true, nil
	},
	"opens to nothing": func(tr value.Transformer, data []byte, at value.Context) ([]byte, bool, error) {
		out, stale, _ := open(tr, data, at)
		return out, stale, nil
	},
	"panics": func(tr value.Transformer, data []byte, at value.Context) ([]byte, bool, error) {
		out, stale, err := open(tr, data, at)
		if err != nil {
			panic(err)
		}
		return out, stale, err
	},
	"refuses plaintext": func(tr value.Transformer, data []byte, at value.Context) ([]byte, bool, error) {
		if !stored.IsEncrypted(data) {
			return nil, false, errors.New("plaintext")
		}
		return open(tr, data, at)
	},
	"always stale": func(tr value.Transformer, data []byte, at value.Context) ([]byte, bool, error) {
		out, _, err := open(tr, data, at)
		return out, true, err
	},
	"never stale": func(tr value.Transformer, data []byte, at value.Context) ([]byte, bool, error) {
		out, _, err := open(tr, data, at)
		return out, false, err
	},
}

func TestTheSuiteCatchesWhatIsReadWrong(t *testing.T) {
	theirs, ours := forms(t)
	for f, reader := range ours {
		data := reader.mustWrite(t, content)
		_, err := agreeOnDamage(theirs[f], reader, data)
		require.NoError(t, err, "%v", f)
		for name, read := range misreadings {
			broken := reader
			broken.Transformer = brokenReader{reader.Transformer, read}
			_, err := agreeOnDamage(theirs[f], broken, data)
			require.Error(t, err, "%v: %s", f, name)
		}
	}
}

// ... and a reader that forgets where a value stood.
func TestTheSuiteCatchesAReaderThatIgnoresTheEtcdKey(t *testing.T) {
	theirs, ours := forms(t)
	for f, writer := range ours {
		broken := writer
		broken.Transformer = brokenReader{broken.Transformer, func(tr value.Transformer, data []byte, _ value.Context) ([]byte, bool, error) {
			return open(tr, data, here)
		}}
		_, err := agree(theirs[f], broken, writer.mustWrite(t, content), there)
		format, _ := payloadOf(writer.mustWrite(t, content))
		require.Equal(t, format.BoundToKey, err != nil, "%v: %v", f, err)
	}
}

// A staleness that is not this library's does not settle: not that of a server
// which finds everything stale, and not kube-apiserver's own between its
// versions, for which source types count.
func TestTheSuiteCatchesAFleetThatDoesNotSettle(t *testing.T) {
	_, endpoint := startStrict(t, "1")
	text := fileOf(kmsV2("two", endpoint))
	theirs, old, ours := theirSeed.start(t, text), theirDEK.start(t, text), ourCounter.start(t, text)
	always, byType := ours, ours
	always.Transformer = brokenReader{ours.Transformer, misreadings["always stale"]}
	byType.Transformer = brokenReader{ours.Transformer, func(tr value.Transformer, data []byte, at value.Context) ([]byte, bool, error) {
		out, stale, err := open(tr, data, at)
		_, payload := payloadOf(data)
		return out, stale || typeOf(payload) != stored.SourceDEK, err
	}}
	for name, c := range map[string]struct {
		fleet   []server
		settles bool
	}{
		"as they are":                      {[]server{theirs, ours}, true},
		"always stale":                     {[]server{theirs, always}, false},
		"stale by source type":             {[]server{theirs, byType}, false},
		"two versions of kube-apiserver":   {[]server{theirs, old}, false},
		"two versions, and we beside them": {[]server{theirs, old, ours}, false},
	} {
		e := etcd{}
		for i := range 3 {
			at := fmt.Sprintf("/%d", i)
			data, err := theirs.TransformToStorage(t.Context(), content, value.DefaultContext(at))
			require.NoError(t, err)
			e[at] = data
		}
		_, err := settle(c.fleet, e, 5)
		require.Equal(t, c.settles, err == nil, "%s: %v", name, err)
	}
}

// A server that changes what it was given to write, and one that writes nothing.
func TestTheSuiteCatchesABrokenCaller(t *testing.T) {
	started := ourCounter.start(t, fileOf(identity))
	clearing := started
	clearing.Transformer = clearingWriter{started.Transformer}
	require.NoError(t, crosses(started, started, content, false))
	require.Error(t, crosses(clearing, started, bytes.Clone(content), false))
	require.Error(t, crosses(started.broken(func([]byte) []byte { return nil }), started, content, false))
}

type clearingWriter struct{ value.Transformer }

func (c clearingWriter) TransformToStorage(ctx context.Context, data []byte, at value.Context) ([]byte, error) {
	out, err := c.Transformer.TransformToStorage(ctx, bytes.Clone(data), at)
	clear(data)
	return out, err
}
