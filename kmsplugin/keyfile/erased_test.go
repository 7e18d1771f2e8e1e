package keyfile

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
)

// requireErased checks that a ring has no KEK any more.
func requireErased(t *testing.T, r *ring, erased bool) {
	t.Helper()
	require.NotEmpty(t, r.Keys)
	for _, k := range r.Keys {
		require.Equal(t, erased, string(k.kek.Reveal()) == string(make([]byte, kek.Size)))
	}
}

func TestCopiesOfKEKsAreWiped(t *testing.T) {
	file := At(filepath.Join(t.TempDir(), "kek"))
	_, err := file.Create(t.Context())
	require.NoError(t, err)
	opened, err := file.Open(t.Context())
	require.NoError(t, err)
	s := opened.(*session)
	_, err = s.Versions(t.Context())
	require.NoError(t, err)
	before := s.ring.Load()
	requireErased(t, before, false)

	_, err = file.Rotate(t.Context())
	require.NoError(t, err)
	versions, err := s.Versions(t.Context())
	require.NoError(t, err)
	after := s.ring.Load()
	requireErased(t, before, true)
	requireErased(t, after, false)
	sealed, used, err := s.Wrap(t.Context(), versions.All[1], []byte("dek"), []byte("key_id"))
	require.NoError(t, err)
	dek, err := s.Unwrap(t.Context(), used, sealed, []byte("key_id"))
	require.NoError(t, err)
	require.Equal(t, []byte("dek"), dek)

	require.NoError(t, s.Close(t.Context()))
	requireErased(t, after, true)
}
