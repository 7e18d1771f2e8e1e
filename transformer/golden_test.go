package transformer_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
)

// goldenRecord is a value that kube-apiserver stored.
type goldenRecord struct {
	Name         string
	Provider     string
	KeyName      string
	KeyHex       string
	AAD          string
	PlaintextHex string
	StoredHex    string
}

// goldenRecords gives the records written by keys held in the process; the
// file has those of KMS too.
func goldenRecords(t testing.TB) []goldenRecord {
	t.Helper()
	file, err := os.ReadFile("../internal/stored/testdata/golden.json")
	require.NoError(t, err)
	var all, local []goldenRecord
	require.NoError(t, json.Unmarshal(file, &all))
	for _, r := range all {
		if constructors[r.Provider] != nil {
			local = append(local, r)
		}
	}
	require.Len(t, local, 7, "aesgcm and aescbc in three key sizes, and secretbox")
	return local
}

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func (r goldenRecord) provider(t testing.TB) provider {
	for _, f := range stored.Formats {
		if f.Kind == r.Provider {
			return one(f, r.KeyName, fromHex(t, r.KeyHex))
		}
	}
	t.Fatalf("no format for %s", r.Provider)
	return provider{}
}

func TestGoldenRecordsOpen(t *testing.T) {
	for _, r := range goldenRecords(t) {
		p, data := r.provider(t), fromHex(t, r.StoredHex)
		want := verdict{opened: true, value: string(fromHex(t, r.PlaintextHex))}
		require.Equal(t, want, read(ours(t, p), data, value.DefaultContext(r.AAD)), r.Name)

		want.stale = true
		require.Equal(t, want, read(ours(t, provider{}, p), data, value.DefaultContext(r.AAD)), "%s, not first", r.Name)

		moved := read(ours(t, p), data, there)
		require.Equal(t, !p.format.BoundToKey, moved.opened, "%s under another etcd key", r.Name)
	}
}
