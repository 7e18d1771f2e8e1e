//go:build !race

package providers_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/providers"
	"github.com/kube-atrest/atrest/reload"
)

// The whole way of a value, from the storage layer's call to its return. The
// race detector drops pooled objects at random, so allocations are counted
// without it.
func TestAValueAllocatesItsResultOnItsWay(t *testing.T) {
	p := faultplugin.Start(t)
	var key value.Context = at
	for _, mode := range envelope.WriteModes() {
		writes := map[envelope.WriteMode]float64{envelope.Counter: 1, envelope.Seed: 3}[mode]
		c, err := config.Parse([]byte(fileOf(rule("secrets", kms("a", p)))), config.Options{})
		require.NoError(t, err)
		x, err := providers.Build(c, providers.Options{Envelope: envelope.Options{Mode: mode}})
		require.NoError(t, err)
		x.Commit(func() {})
		require.NoError(t, x.Prepare(t.Context()))
		set := reload.NewSet(x, reload.SetOptions{})
		defer set.Close()
		secret := set.TransformerForResource(secrets)
		plaintext := make([]byte, 1<<10)
		stored, err := secret.TransformToStorage(t.Context(), plaintext, key)
		require.NoError(t, err)
		runtime.GC()
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _, _ = secret.TransformToStorage(t.Context(), plaintext, key) }), writes, "%s write", mode)
		require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { _, _, _ = secret.TransformFromStorage(t.Context(), stored, key) }), writes, "%s read", mode)
	}
}
