//go:build !race

package envelope

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
)

// The race detector drops pooled objects at random, so allocations are counted
// without it.
func TestTheHotPathAllocatesItsResultAndNothingElse(t *testing.T) {
	plaintext := make([]byte, 1<<10)
	var testKey value.Context = bytesContext("/registry/secrets/default/golden")
	for mode, limits := range map[WriteMode][2]float64{Counter: {1, 1}, Seed: {4, 4}} {
		if !slices.Contains(WriteModes(), mode) {
			continue
		}
		r := newRig(t, func(o *Options) { o.Mode = mode; o.Clock = nil })
		var out []byte
		var err error
		require.LessOrEqual(t, testing.AllocsPerRun(200, func() { out, err = r.Seal(t.Context(), testPrefix, plaintext, testKey) }), limits[0], "%s write", mode)
		require.NoError(t, err)
		payload := out[len(testPrefix):]
		require.LessOrEqual(t, testing.AllocsPerRun(200, func() { _, _, err = r.Open(t.Context(), payload, testKey) }), limits[1], "%s read", mode)
		require.NoError(t, err)
		l, _ := reader(t)
		require.LessOrEqual(t, testing.AllocsPerRun(200, func() { _, _, err = l.Open(t.Context(), payload, testKey) }), limits[1], "%s read from the cache", mode)
		require.NoError(t, err)
	}
}
