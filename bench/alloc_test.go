//go:build !race

package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/measure"
)

// Guards of the hot path from end to end: the file, the reloading set, the
// chain, metrics, the envelope. The etcd key used here allocates nothing; one of
// etcd's storage layer allocates itself. Not under the race detector, which
// drops pooled objects at random.
func TestAnOperationAllocatesItsResultAndLittleElse(t *testing.T) {
	lab, err := side.NewLab(t.Context(), time.Millisecond)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })
	annotating := faultplugin.Start(t)
	annotating.Set(func(b *faultplugin.Behaviour) {
		b.Annotations = map[string][]byte{"local-kek.kms.bench.example.com": []byte("1234abcd"), "region.kms.bench.example.com": []byte("eu-north-1")}
	})
	annotated := &measure.Plugin{Endpoint: annotating.Endpoint()}
	for _, c := range []struct {
		name   string
		plugin *measure.Plugin
		limit  float64
	}{
		{side.AtrestCounter, lab.Quick, 1},
		{side.AtrestCounter, annotated, 1},
		{side.AtrestSeed, lab.Quick, 4},
		{side.AtrestSeed, annotated, 4},
		{side.AtrestAESGCM, lab.Quick, 1},
	} {
		s, err := lab.Start(t.Context(), c.name, c.plugin)
		require.NoError(t, err)
		at, plaintext, ctx := side.Key("a"), make([]byte, 1<<10), t.Context()
		stored, err := s.Stored(ctx, plaintext, at)
		require.NoError(t, err)

		require.LessOrEqual(t, testing.AllocsPerRun(500, func() { _, err = s.TransformToStorage(ctx, plaintext, at) }), c.limit, "%s, write", c.name)
		require.NoError(t, err)
		require.LessOrEqual(t, testing.AllocsPerRun(500, func() { _, _, err = s.TransformFromStorage(ctx, stored, at) }), c.limit, "%s, read", c.name)
		require.NoError(t, err)
		s.Close()
	}
}
