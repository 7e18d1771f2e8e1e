package keyfile

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/stretchr/testify/require"
)

func TestAFileContinuesAnotherOnlyWithTheSameNamesAndKeys(t *testing.T) {
	all := ringOf(t, 3)
	keys, older := all.Keys, newRing(all.Keys[1].id, all.Keys[:2]...)
	require.NoError(t, older.HasAll(older.Ring))
	require.NoError(t, all.HasAll(older.Ring))
	require.NoError(t, newRing(keys[0].id, keys...).HasAll(older.Ring), "another one writes")
	require.ErrorContains(t, newRing(keys[0].id, keys[0]).HasAll(older.Ring), "no longer has version "+keys[1].id)

	other, err := kek.Random(domain, rand.Reader)
	require.NoError(t, err)
	rekeyed, renamed, former := keys[1], keys[1], keys[1]
	rekeyed.kek, renamed.id, former.formerly = other, keys[2].id, "2."+keys[1].id
	require.ErrorContains(t, newRing(keys[0].id, keys[0], rekeyed, keys[2]).HasAll(older.Ring), "something else", "another key under the same name")
	require.ErrorContains(t, newRing(keys[0].id, keys[0], former).HasAll(older.Ring), "something else", "what it was called is lost")
	require.ErrorContains(t, newRing(keys[0].id, keys[0], renamed).HasAll(older.Ring), "no longer", "the same key under another name")
	_, err = all.merged(newRing(keys[0].id, keys[0], rekeyed))
	require.ErrorIs(t, err, ErrDamaged)
}

// Whatever nodes have, and in whatever order they merge it, they end with the same.
func TestMergingIsTheSameInAnyOrder(t *testing.T) {
	all := ringOf(t, 5)
	same := all.Keys[3].created // two made at the same time
	all.Keys[4].created = same
	all = newRing(all.Keys[0].id, all.Keys...)
	some := func(writes int, of ...int) *ring {
		var keys []key
		for _, i := range of {
			keys = append(keys, all.Keys[i])
		}
		return newRing(all.Keys[writes].id, keys...)
	}
	nodes := []*ring{some(1, 0, 1), some(3, 0, 1, 3), some(4, 0, 4), some(2, 2)}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 2, 0, 1, 3, 1}} {
		merged := nodes[order[0]]
		for _, i := range order[1:] {
			var err error
			merged, err = merged.merged(nodes[i])
			require.NoError(t, err)
		}
		require.Equal(t, string(encoded(t, newRing(all.Keys[4].id, all.Keys...))), string(encoded(t, merged)))
	}
}

func TestANewKeyIsYoungerThanAllWhateverTheClockSays(t *testing.T) {
	ring := ringOf(t, 2)
	newest := ring.Keys[1].created
	for _, at := range []time.Time{noon.Add(-24 * time.Hour), newest} {
		require.True(t, ring.Time(at).After(newest))
	}
	require.Equal(t, newest.Add(time.Hour), ring.Time(newest.Add(time.Hour)))
}

func TestAKeyIsFoundByTheBeginningOfItsName(t *testing.T) {
	ring := ringOf(t, 3)
	for _, k := range ring.Keys {
		for _, name := range []string{k.id, k.id[:20], k.Version().KeyID()} {
			found, err := ring.Find(name)
			require.NoError(t, err)
			require.Equal(t, k.id, found.id)
		}
	}
	newest, err := ring.Find("")
	require.NoError(t, err)
	require.Equal(t, ring.Keys[2].id, newest.id)
	_, err = ring.Find(strings.Repeat("x", 100))
	require.ErrorContains(t, err, "none of its 3 versions")
	require.NotContains(t, err.Error(), strings.Repeat("x", 65))
	twins := slices.Clone(ring.Keys)
	twins[0].id, twins[1].id = strings.Repeat("0", 32), strings.Repeat("0", 31)+"1"
	_, err = newRing("", twins...).Find("000")
	require.ErrorContains(t, err, "give more")
}
