package transformer_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/nacl/secretbox"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/stored"
)

// BenchmarkWrite and BenchmarkRead put a chain of one key beside kube-apiserver's
// and beside the cipher alone, which is the floor: a fresh result, the random
// nonce where one is made, and nothing else. Compare within one run.
func BenchmarkWrite(b *testing.B) {
	for _, p := range everyKind() {
		for _, size := range []int{1 << 10, 64 << 10} {
			plaintext := keyOf('v', size)
			var at value.Context = here
			name := fmt.Sprintf("%v/%d", p, size)
			alone := bare(b, p.format.Kind)
			run(b, name+"/cipher", size, func() { alone.seal(plaintext) })
			for side, chain := range sides(b, p) {
				run(b, name+"/"+sideNames[side], size, func() { _, _ = chain.TransformToStorage(requested, plaintext, at) })
			}
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, p := range everyKind() {
		for _, size := range []int{1 << 10, 64 << 10} {
			data := write(b, ours(b, p), keyOf('v', size))
			var at value.Context = here
			name := fmt.Sprintf("%v/%d", p, size)
			payload := data[len(p.format.PrefixFor("key1")):]
			alone := bare(b, p.format.Kind)
			run(b, name+"/cipher", size, func() { alone.open(payload) })
			for side, chain := range sides(b, p) {
				run(b, name+"/"+sideNames[side], size, func() { _, _, _ = chain.TransformFromStorage(requested, data, at) })
			}
		}
	}
}

func run(b *testing.B, name string, size int, op func()) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(size))
		for b.Loop() {
			op()
		}
	})
}

var (
	sideNames = [...]string{"atrest", "kube"}
	// kube-apiserver takes the metric's resource from the request.
	requested = request.WithRequestInfo(context.Background(), &request.RequestInfo{Resource: "secrets"})
)

func sides(b *testing.B, p provider) [2]value.Transformer {
	return [2]value.Transformer{ours(b, p), theirs(b, p)}
}

func everyKind() []provider {
	return []provider{
		one(stored.AESGCM, "key1", keyOf(1, 32)),
		one(stored.AESCBC, "key1", keyOf(1, 32)),
		one(stored.Secretbox, "key1", keyOf(1, 32)),
	}
}

// bareCipher works on payloads, without prefix, chain or metrics.
type bareCipher struct{ seal, open func([]byte) }

var sink []byte

func bare(b *testing.B, kind string) bareCipher {
	key := keyOf(1, 32)
	if kind == stored.Secretbox.Kind {
		return bareSecretbox([32]byte(key))
	}
	block, err := aes.NewCipher(key)
	require.NoError(b, err)
	if kind == stored.AESCBC.Kind {
		return bareCBC(block)
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(b, err)
	return bareCipher{
		seal: func(in []byte) { sink = gcm.Seal(nil, nil, in, here) },
		open: func(in []byte) { sink, _ = gcm.Open(nil, nil, in, here) },
	}
}

// bareCBC leaves the padding out, and takes whole blocks.
func bareCBC(block cipher.Block) bareCipher {
	return bareCipher{
		seal: func(in []byte) {
			sink = make([]byte, 16+len(in))
			_, _ = rand.Read(sink[:16])
			cipher.NewCBCEncrypter(block, sink[:16]).CryptBlocks(sink[16:], in)
		},
		open: func(in []byte) {
			sink = make([]byte, len(in)-16)
			cipher.NewCBCDecrypter(block, in[:16]).CryptBlocks(sink, in[16:])
		},
	}
}

func bareSecretbox(key [32]byte) bareCipher {
	return bareCipher{
		seal: func(in []byte) {
			out := make([]byte, 24, 24+secretbox.Overhead+len(in))
			_, _ = rand.Read(out)
			sink = secretbox.Seal(out, in, (*[24]byte)(out), &key)
		},
		open: func(in []byte) {
			out := make([]byte, 0, len(in)-24-secretbox.Overhead)
			sink, _ = secretbox.Open(out, in[24:], (*[24]byte)(in), &key)
		},
	}
}
