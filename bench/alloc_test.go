//go:build !race

package bench

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/envelope"
)

// Guards of the hot path from end to end: the file, the reloading set, the
// chain, metrics, the envelope. The etcd key used here allocates nothing. Not
// under the race detector, which drops pooled objects at random.
func TestAnOperationAllocatesItsResultAndLittleElse(t *testing.T) {
	lab, err := side.NewLab(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })
	plugin, err := lab.Plugin(t.Context(), side.Behaviour{})
	require.NoError(t, err)
	annotating, err := lab.Plugin(t.Context(), side.Behaviour{Annotated: true})
	require.NoError(t, err)

	kms := func(p *side.Plugin) string {
		file, err := lab.KMSFile("kms", p)
		require.NoError(t, err)
		return file
	}
	local := func(kind string) string {
		file, err := lab.KeyFile(kind)
		require.NoError(t, err)
		return file
	}
	for _, c := range []struct {
		name, file  string
		mode        envelope.WriteMode
		write, read float64
	}{
		{"counter", kms(plugin), envelope.Counter, 1, 1},
		{"counter-annotated", kms(annotating), envelope.Counter, 1, 1},
		{"seed", kms(plugin), envelope.Seed, 4, 4},
		{"seed-annotated", kms(annotating), envelope.Seed, 4, 4},
		{"aesgcm", local("aesgcm"), envelope.Counter, 1, 1},
		{"secretbox", local("secretbox"), envelope.Counter, 1, 1},
		{"aescbc", local("aescbc"), envelope.Counter, 3, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := lab.Atrest(t.Context(), side.Config{Name: c.name, File: c.file, Reload: true}, c.mode)
			require.NoError(t, err)
			defer s.Close()
			at, plaintext, ctx := side.Key("a"), make([]byte, 1<<10), t.Context()
			stored, err := s.Stored(ctx, plaintext, at)
			require.NoError(t, err)

			require.LessOrEqual(t, testing.AllocsPerRun(500, func() { _, err = s.TransformToStorage(ctx, plaintext, at) }), c.write, "write")
			require.NoError(t, err)
			require.LessOrEqual(t, testing.AllocsPerRun(500, func() { _, _, err = s.TransformFromStorage(ctx, stored, at) }), c.read, "read")
			require.NoError(t, err)
		})
	}
}
