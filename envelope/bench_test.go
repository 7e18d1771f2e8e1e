package envelope

import (
	"crypto/aes"
	"crypto/cipher"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
)

// BenchmarkKiB writes and reads a value of 1 KiB beside the bare cipher and
// kube-apiserver's own transformer. The module bench does it in full.
func BenchmarkKiB(b *testing.B) {
	plaintext := make([]byte, 1<<10)
	var at value.Context = bytesContext("/registry/secrets/default/golden")
	block, err := aes.NewCipher(make([]byte, dekSize))
	require.NoError(b, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(b, err)
	nonce := make([]byte, nonceSize)
	sealed := aead.Seal(nil, nonce, plaintext, at.AuthenticatedData())

	b.Run("bare seal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			aead.Seal(nil, nonce, plaintext, at.AuthenticatedData())
		}
	})
	b.Run("bare open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			aead.Open(nil, nonce, sealed, at.AuthenticatedData())
		}
	})
	for _, mode := range WriteModes() {
		l := lease(NewProvider(newFaultyPlugin(), Options{Mode: mode}), Writes)
		defer l.End()
		require.NoError(b, l.Asked(b.Context()))
		out, err := l.Seal(b.Context(), testPrefix, plaintext, at)
		require.NoError(b, err)
		b.Run(string(mode)+" seal", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Seal(b.Context(), testPrefix, plaintext, at)
			}
		})
		b.Run(string(mode)+" open", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Open(b.Context(), out[len(testPrefix):], at)
			}
		})
	}
}

// BenchmarkNonce takes nonces of one DEK, alone and by as many goroutines as there are
// processors. The module bench has them with all that is around them.
func BenchmarkNonce(b *testing.B) {
	n, err := newNonces(zeros{}, DefaultMaxWrites)
	require.NoError(b, err)
	b.Run("alone", func(b *testing.B) {
		var nonce [nonceSize]byte
		for b.Loop() {
			n.next(nonce[:])
		}
	})
	b.Run("contended", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			var nonce [nonceSize]byte
			for pb.Next() {
				n.next(nonce[:])
			}
		})
	})
}
