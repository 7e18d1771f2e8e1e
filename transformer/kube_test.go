package transformer_test

import (
	"context"
	"crypto/aes"
	"crypto/fips140"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	kubeaes "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	kubeidentity "k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	kubesecretbox "k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/transformer"
)

// kube-apiserver's transformers log every failure; these tests make thousands.
func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

var (
	ctx     = context.Background()
	secrets = schema.GroupResource{Resource: "secrets"}
	here    = value.DefaultContext("/registry/secrets/default/golden")
	there   = value.DefaultContext("/registry/secrets/default/other")
)

// keyed is a key as an EncryptionConfiguration has it.
type keyed struct {
	name string
	key  []byte
}

// provider is one element of a resource's list of providers.
type provider struct {
	format stored.Format // the zero Format is identity
	keys   []keyed
}

func (p provider) String() string {
	if p.format.Kind == "" {
		return "identity"
	}
	return fmt.Sprintf("%s-%d", p.format.Kind, len(p.keys[0].key)*8)
}

func one(format stored.Format, keyName string, key []byte) provider {
	return provider{format: format, keys: []keyed{{keyName, key}}}
}

// everyProvider has each kind with each of its key sizes.
func everyProvider() []provider {
	var all []provider
	for _, size := range []int{16, 24, 32} {
		all = append(all, one(stored.AESGCM, "key1", keyOf(byte(size), size)), one(stored.AESCBC, "key1", keyOf(byte(size), size)))
	}
	return append(all, one(stored.Secretbox, "key1", keyOf(32, 32)), provider{})
}

func keyOf(fill byte, size int) []byte {
	key := make([]byte, size)
	for i := range key {
		key[i] = fill
	}
	return key
}

// ours builds the chain of this package, theirs that of kube-apiserver.
func ours(t require.TestingT, providers ...provider) value.Transformer {
	return transformer.NewChain(secrets, entries(t, providers...))
}

func entries(t require.TestingT, providers ...provider) []transformer.Entry {
	var out []transformer.Entry
	for _, p := range providers {
		if p.format.Kind == "" {
			out = append(out, transformer.Entry{Label: "identity", Provider: transformer.Identity()})
		}
		for _, k := range p.keys {
			built, err := constructors[p.format.Kind](k.key)
			require.NoError(t, err)
			out = append(out, transformer.Entry{Prefix: p.format.PrefixFor(k.name), Label: p.format.Prefix, Provider: built})
		}
	}
	return out
}

var constructors = map[string]func([]byte) (transformer.Provider, error){
	stored.AESGCM.Kind:    transformer.NewAESGCM,
	stored.AESCBC.Kind:    transformer.NewAESCBC,
	stored.Secretbox.Kind: transformer.NewSecretbox,
}

func theirs(t require.TestingT, providers ...provider) value.Transformer {
	var outer []value.PrefixTransformer
	for _, p := range providers {
		if p.format.Kind == "" {
			outer = append(outer, value.PrefixTransformer{Transformer: kubeidentity.NewEncryptCheckTransformer()})
			continue
		}
		var inner []value.PrefixTransformer
		for _, k := range p.keys {
			inner = append(inner, value.PrefixTransformer{Prefix: []byte(k.name + ":"), Transformer: theirProvider(t, p.format, k.key)})
		}
		outer = append(outer, value.PrefixTransformer{
			Prefix:      []byte(p.format.Prefix),
			Transformer: value.NewPrefixTransformers(errors.New("no matching key was found"), inner...),
		})
	}
	return value.NewPrefixTransformers(errors.New("no matching prefix found"), outer...)
}

func theirProvider(t require.TestingT, format stored.Format, key []byte) value.Transformer {
	if format.Kind == stored.Secretbox.Kind {
		return kubesecretbox.NewSecretboxTransformer([32]byte(key))
	}
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	if format.Kind == stored.AESCBC.Kind {
		return kubeaes.NewCBCTransformer(block)
	}
	// kube-apiserver's own GCM does not exist under GODEBUG=fips140=only.
	var gcm value.Transformer
	fips140.WithoutEnforcement(func() { gcm, err = kubeaes.NewGCMTransformer(block) })
	require.NoError(t, err)
	return gcm
}

// verdict is what a reader makes of a stored value.
type verdict struct {
	opened bool
	value  string
	stale  bool
}

func read(reader value.Read, data []byte, at value.Context) verdict {
	out, stale, err := reader.TransformFromStorage(ctx, data, at)
	if err != nil {
		return verdict{}
	}
	return verdict{opened: true, value: string(out), stale: stale}
}

// readTheirs answers kube-apiserver's panic on a CBC payload that is an IV and
// nothing else with an error, which is what it is here.
func readTheirs(reader value.Read, data []byte, at value.Context) (v verdict) {
	defer func() {
		if recover() != nil {
			v = verdict{}
		}
	}()
	return read(reader, data, at)
}

func write(t require.TestingT, writer value.Write, plaintext []byte) []byte {
	data, err := writer.TransformToStorage(ctx, plaintext, here)
	require.NoError(t, err)
	return data
}

func TestValuesOfEverySizeCrossBothWays(t *testing.T) {
	for _, p := range everyProvider() {
		t.Run(p.String(), func(t *testing.T) {
			for _, size := range []int{0, 1, 15, 16, 17, 1 << 10, 64 << 10, 3 << 19} {
				plaintext := keyOf('v', size)
				want := verdict{opened: true, value: string(plaintext)}
				require.True(t, want == read(theirs(t, p), write(t, ours(t, p), plaintext), here), "ours to theirs, %d bytes", size)
				require.True(t, want == read(ours(t, p), write(t, theirs(t, p), plaintext), here), "theirs to ours, %d bytes", size)
			}
		})
	}
}

// Any provider writes, any pair of providers reads: kube-apiserver's own
// cross-provider matrix.
func TestEveryPairOfProvidersReadsAlike(t *testing.T) {
	for _, writer := range everyProvider() {
		data := write(t, theirs(t, writer), []byte("plain"))
		for _, first := range everyProvider() {
			for _, second := range everyProvider() {
				for _, at := range []value.Context{here, there} {
					require.Equal(t, readTheirs(theirs(t, first, second), data, at), read(ours(t, first, second), data, at),
						"%v read by %v, %v at %s", writer, first, second, at)
				}
			}
		}
	}
}

func TestDamagedValuesGetKubeAPIServersVerdict(t *testing.T) {
	for _, p := range everyProvider() {
		for _, size := range []int{0, 19} {
			t.Run(fmt.Sprintf("%v/%d", p, size), func(t *testing.T) {
				oursRead, theirsRead := ours(t, p, provider{}), theirs(t, p, provider{})
				record := write(t, theirs(t, p), keyOf('v', size))
				for i := range record {
					require.Equal(t, readTheirs(theirsRead, record[:i], here), read(oursRead, record[:i], here), "cut at byte %d", i)
				}
				for bit := range len(record) * 8 {
					flipped := append([]byte(nil), record...)
					flipped[bit/8] ^= 1 << (bit % 8)
					require.Equal(t, readTheirs(theirsRead, flipped, here), read(oursRead, flipped, here), "flip of bit %d", bit)
				}
			})
		}
	}
}

// Histories of keys: names repeat, contain colons and begin alike, values are
// written by either side, moved, cut and damaged.
func TestAnyChainReadsWhatKubeAPIServersReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		writers := rapid.SliceOfN(providers, 1, 3).Draw(t, "writers")
		readers := rapid.SliceOfN(providers, 1, 4).Draw(t, "readers")
		writer := ours(t, writers...)
		if rapid.Bool().Draw(t, "kube-apiserver writes") {
			writer = theirs(t, writers...)
		}
		data := write(t, writer, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "plaintext"))
		data = data[:len(data)-rapid.SampledFrom([]int{0, 0, 0, min(1, len(data)), len(data) / 2}).Draw(t, "cut")]
		if len(data) > 0 && rapid.IntRange(0, 3).Draw(t, "damage") == 0 {
			data[rapid.IntRange(0, len(data)-1).Draw(t, "where")] ^= rapid.Byte().Draw(t, "mask")
		}
		at := rapid.SampledFrom([]value.Context{here, here, there}).Draw(t, "at")
		require.Equal(t, readTheirs(theirs(t, readers...), data, at), read(ours(t, readers...), data, at))
	})
}

var providers = rapid.Custom(func(t *rapid.T) provider {
	format := rapid.SampledFrom([]stored.Format{stored.AESGCM, stored.AESCBC, stored.Secretbox, {}}).Draw(t, "format")
	if format.Kind == "" {
		return provider{}
	}
	keys := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) keyed {
		return keyed{
			name: rapid.SampledFrom([]string{"a", "b", "a:b", "a:", "ab"}).Draw(t, "name"),
			key:  keyOf(rapid.SampledFrom([]byte{1, 2, 3}).Draw(t, "key"), 32),
		}
	}), 1, 3).Draw(t, "keys")
	return provider{format: format, keys: keys}
})
