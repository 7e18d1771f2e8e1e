package transformer_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
)

// fuzzed has each kind of provider under one key name.
var fuzzed = []provider{
	one(stored.AESGCM, "key1", keyOf(1, 32)),
	one(stored.AESCBC, "key1", keyOf(2, 32)),
	one(stored.Secretbox, "key1", keyOf(3, 32)),
	{},
}

// prefixes let the fuzzer reach a provider at once; the last adds nothing.
var prefixes = []string{
	stored.AESGCM.PrefixFor("key1"), stored.AESCBC.PrefixFor("key1"), stored.Secretbox.PrefixFor("key1"), "",
}

// requireCorpus fails if the committed corpus of f has gone missing.
func requireCorpus(f *testing.F) {
	files, err := os.ReadDir("testdata/fuzz/" + f.Name())
	require.NoError(f, err)
	require.NotEmpty(f, files)
}

// FuzzChain holds a chain of all providers to its promise: any bytes give a
// value or an error, unchanged, and what opens means the same to kube-apiserver.
func FuzzChain(f *testing.F) {
	requireCorpus(f)
	chain, kube := ours(f, fuzzed...), theirs(f, fuzzed...)
	f.Fuzz(func(t *testing.T, which uint8, rest, etcdKey []byte) {
		data := append([]byte(prefixes[int(which)%len(prefixes)]), rest...)
		before := bytes.Clone(data)
		got := read(chain, data, value.DefaultContext(etcdKey))
		require.Equal(t, before, data)
		if got.opened {
			require.Equal(t, readTheirs(kube, data, value.DefaultContext(etcdKey)), got)
		}
	})
}

// FuzzDamage seals a value and changes one byte of it. Authenticated formats
// never open again; what was not changed reads as it was written.
func FuzzDamage(f *testing.F) {
	requireCorpus(f)
	chains := make([]value.Transformer, len(fuzzed))
	for i, p := range fuzzed {
		chains[i] = ours(f, p)
	}
	f.Fuzz(func(t *testing.T, which uint8, plaintext []byte, where uint32, mask byte) {
		i := int(which) % len(fuzzed)
		if stored.IsEncrypted(plaintext) && fuzzed[i].format.Kind == "" {
			return // identity reads this as ciphertext, as it must
		}
		data := bytes.Clone(write(t, chains[i], plaintext))
		require.Equal(t, verdict{opened: true, value: string(plaintext)}, read(chains[i], data, here))
		if len(data) == 0 || mask == 0 {
			return
		}
		data[int(where%uint32(len(data)))] ^= mask
		got := read(chains[i], data, here)
		if kind := fuzzed[i].format.Kind; kind == stored.AESGCM.Kind || kind == stored.Secretbox.Kind {
			require.False(t, got.opened)
		}
	})
}
