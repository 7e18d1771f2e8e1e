//go:build !race

package kmsv1

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
)

// The race detector drops pooled objects at random, so allocations are counted
// without it.
func TestAHotReadAllocatesItsResultAndNothingElse(t *testing.T) {
	var at value.Context = key("/registry/secrets/default/golden")
	for name, wrap := range map[string]func([]byte) []byte{
		"short": nil,
		"long":  func([]byte) []byte { return bytes.Repeat([]byte{1}, 4*maxKey) },
	} {
		r := newRig(t, func(o *Options) { o.Clock = nil })
		r.plugin.set(func(p *faultyPlugin) { p.wrap = wrap })
		out, err := r.Seal(t.Context(), testPrefix, make([]byte, 1<<10), at)
		require.NoError(t, err)
		payload := out[len(testPrefix):]
		require.LessOrEqual(t, testing.AllocsPerRun(200, func() { _, _, err = r.Open(t.Context(), payload, at) }), 1.0, name)
		require.NoError(t, err)
	}

	r := newRig(t)
	payload := r.write("value")
	l, _ := reader(t)
	var err error
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() { _, _, err = l.Open(t.Context(), payload, at) }), 1.0, "unwrapped by the plugin")
	require.NoError(t, err)
}
