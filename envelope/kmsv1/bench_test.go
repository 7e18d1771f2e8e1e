package kmsv1

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
	kube "k8s.io/apiserver/pkg/storage/value/encrypt/envelope"
)

// BenchmarkKiB reads and writes a value of 1 KiB beside kube-apiserver's own
// transformer, both on a plugin in memory.
func BenchmarkKiB(b *testing.B) {
	plaintext := make([]byte, 1<<10)
	var at value.Context = key("/registry/secrets/default/golden")
	r := newRig(b, func(o *Options) { o.Clock = nil })
	theirs := kube.NewEnvelopeTransformer(serviceOf{r.plugin}, defaultCacheSize, asOf125)
	out, err := r.Seal(b.Context(), testPrefix, plaintext, at)
	require.NoError(b, err)
	payload := out[len(testPrefix):]

	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Open(b.Context(), payload, at)
		}
	})
	b.Run("open in parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				r.Open(b.Context(), payload, at)
			}
		})
	})
	b.Run("kube-apiserver's open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			theirs.TransformFromStorage(b.Context(), payload, at)
		}
	})
	b.Run("seal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Seal(b.Context(), testPrefix, plaintext, at)
		}
	})
	b.Run("kube-apiserver's seal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			theirs.TransformToStorage(b.Context(), plaintext, at)
		}
	})
}
