package interop

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// golden is a value that kube-apiserver stored.
type golden struct{ Name, Provider, KeyName, KeyHex, AAD, PlaintextHex, StoredHex string }

func goldens(t testing.TB) []golden {
	t.Helper()
	content, err := os.ReadFile("../stored/testdata/golden.json")
	require.NoError(t, err)
	var all []golden
	require.NoError(t, json.Unmarshal(content, &all))
	require.Len(t, all, 13, "aesgcm and aescbc in three key sizes, secretbox, KMS v1 in two modes, KMS v2 in four")
	return all
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// kind is the provider that reads a golden value; the plugin unwraps base64.
func (g golden) kind(t testing.TB, v1, v2 string) kind {
	f, name, ok := stored.Identify(unhex(t, g.StoredHex))
	require.True(t, ok)
	switch f {
	case stored.KMSv1:
		return kmsV1(name, v1)
	case stored.KMSv2:
		return kmsV2(name, v2)
	}
	require.Equal(t, g.KeyName, name)
	return keyed(f, name, string(unhex(t, g.KeyHex)))
}

// Values that kube-apiserver stored open through a whole configuration, of
// either side, first or not, warm or cold, and nowhere else than where they
// were stored if they are bound to it.
func TestGoldenValuesOpenThroughWholeConfigurations(t *testing.T) {
	v1, v2 := startV1(t), faultplugin.Start(t)
	for _, g := range goldens(t) {
		k, data := g.kind(t, v1, v2.Endpoint()), unhex(t, g.StoredHex)
		f, _ := payloadOf(data)
		want := verdict{opened: true, value: string(unhex(t, g.PlaintextHex))}
		for _, s := range sides {
			isFirst, isNot := s.start(t, fileOf(k, identity)), s.start(t, fileOf(keyed(stored.AESGCM, "other", key("o", 32)), k))
			for range 2 {
				got := isFirst.read(data, value.DefaultContext(g.AAD))
				got.stale = false // the difference in it is the business of TestGoldenValuesGetOneVerdict
				require.Equal(t, want, got, "%s by %s", g.Name, s.name)
				stale := want
				stale.stale = true
				require.Equal(t, stale, isNot.read(data, value.DefaultContext(g.AAD)), "%s by %s", g.Name, s.name)
			}
			moved := f.BoundToKey && g.Name != "kmsv1-cbc-short"
			require.Equal(t, !moved, isFirst.read(data, there).opened, "%s by %s", g.Name, s.name)
		}
	}
}

func TestGoldenValuesGetOneVerdict(t *testing.T) {
	v1, v2 := startV1(t), faultplugin.Start(t)
	for _, g := range goldens(t) {
		k, data := g.kind(t, v1, v2.Endpoint()), unhex(t, g.StoredHex)
		_, payload := payloadOf(data)
		for _, readers := range [][2]side{{theirSeed, ourCounter}, {theirDEK, ourSeed}} {
			theirs, ours := readers[0].start(t, fileOf(k)), readers[1].start(t, fileOf(k))
			found, err := agree(theirs, ours, data, value.DefaultContext(g.AAD))
			require.NoError(t, err, g.Name)
			require.Equal(t, k.name == stored.KMSv2.Kind && typeOf(payload) != theirs.source, found == sourceTypeAlone, g.Name)
		}
	}
}
