package keyfile

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAKeyringContinuesAnotherOnlyWithTheSameNamesAndKeys(t *testing.T) {
	keys := newKeys(t, 3)
	older := newKeyring(keys[:2])
	require.True(t, newKeyring(keys[:2]).startsWith(older))
	require.True(t, newKeyring(keys).startsWith(older))
	require.False(t, newKeyring(keys[:1]).startsWith(older), "one is missing")
	require.False(t, newKeyring([]key{keys[1], keys[0]}).startsWith(older), "another order")

	other, err := randomKEK(rand.Reader)
	require.NoError(t, err)
	rekeyed := key{id: keys[1].id, created: keys[1].created, kek: other}
	require.False(t, newKeyring([]key{keys[0], rekeyed, keys[2]}).startsWith(older), "another key under the same name")
	renamed := key{id: keys[2].id, created: keys[1].created, kek: keys[1].kek}
	require.False(t, newKeyring([]key{keys[0], renamed}).startsWith(older), "the same key under another name")
}
