package keyfile

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAFileContinuesAnotherOnlyWithTheSameNamesAndKeys(t *testing.T) {
	all := newRing(t, 3)
	keys, older := all.keys, newKeyring(all.keys[1].id, all.keys[:2]...)
	require.NoError(t, older.hasAll(older))
	require.NoError(t, all.hasAll(older))
	require.NoError(t, newKeyring(keys[0].id, keys...).hasAll(older), "another one writes")
	require.ErrorContains(t, newKeyring(keys[0].id, keys[0]).hasAll(older), "no longer has version "+keys[1].id)

	other, err := randomKEK(rand.Reader)
	require.NoError(t, err)
	rekeyed, renamed, former := keys[1], keys[1], keys[1]
	rekeyed.kek, renamed.id, former.formerly = other, keys[2].id, "2."+keys[1].id
	require.ErrorContains(t, newKeyring(keys[0].id, keys[0], rekeyed, keys[2]).hasAll(older), "something else", "another key under the same name")
	require.ErrorContains(t, newKeyring(keys[0].id, keys[0], former).hasAll(older), "something else", "what it was called is lost")
	require.ErrorContains(t, newKeyring(keys[0].id, keys[0], renamed).hasAll(older), "no longer", "the same key under another name")
	_, err = all.merged(newKeyring(keys[0].id, keys[0], rekeyed))
	require.ErrorIs(t, err, ErrDamaged)
}

// Whatever nodes have, and in whatever order they merge it, they end with the same.
func TestMergingIsTheSameInAnyOrder(t *testing.T) {
	all := newRing(t, 5)
	same := all.keys[3].created // two made at the same time
	all.keys[4].created = same
	all = newKeyring(all.keys[0].id, all.keys...)
	some := func(writes int, of ...int) *keyring {
		var keys []key
		for _, i := range of {
			keys = append(keys, all.keys[i])
		}
		return newKeyring(all.keys[writes].id, keys...)
	}
	nodes := []*keyring{some(1, 0, 1), some(3, 0, 1, 3), some(4, 0, 4), some(2, 2)}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 2, 0, 1, 3, 1}} {
		merged := nodes[order[0]]
		for _, i := range order[1:] {
			var err error
			merged, err = merged.merged(nodes[i])
			require.NoError(t, err)
		}
		require.Equal(t, string(encoded(t, newKeyring(all.keys[4].id, all.keys...))), string(encoded(t, merged)))
	}
}

func TestANewKeyIsYoungerThanAllWhateverTheClockSays(t *testing.T) {
	ring := newRing(t, 2)
	for _, at := range []time.Time{noon.Add(-24 * time.Hour), ring.keys[1].created} {
		k, err := newKey(at, rand.Reader)
		require.NoError(t, err)
		ring = ring.with(k)
		require.Equal(t, k.id, ring.keys[len(ring.keys)-1].id)
	}
}

func TestAKeyIsFoundByTheBeginningOfItsName(t *testing.T) {
	ring := newRing(t, 3)
	for _, k := range ring.keys {
		for _, name := range []string{k.id, k.id[:20], k.version().KeyID()} {
			found, err := ring.find(name)
			require.NoError(t, err)
			require.Equal(t, k.id, found.id)
		}
	}
	newest, err := ring.find("")
	require.NoError(t, err)
	require.Equal(t, ring.keys[2].id, newest.id)
	_, err = ring.find(strings.Repeat("x", 100))
	require.ErrorContains(t, err, "none of its 3 versions")
	require.NotContains(t, err.Error(), strings.Repeat("x", 65))
	twins := slices.Clone(ring.keys)
	twins[0].id, twins[1].id = strings.Repeat("0", 32), strings.Repeat("0", 31)+"1"
	_, err = newKeyring("", twins...).find("000")
	require.ErrorContains(t, err, "give more")
}
