package lookahead

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// anyKey is any string, mostly of few letters, so that keys have much in common.
var anyKey = rapid.Custom(func(t *rapid.T) string {
	if rapid.Bool().Draw(t, "wild") {
		return string(rapid.SliceOfN(rapid.Byte(), 1, 12).Draw(t, "key"))
	}
	return rapid.StringOfN(rapid.SampledFrom([]rune("ab/z0")), 1, 20, -1).Draw(t, "key")
})

func TestFollowing(t *testing.T) {
	for s, want := range map[string]string{"/a/": "/a0", "a\xff": "b", "a\x00": "a\x01", "\xff\xff": "", "": ""} {
		require.Equal(t, want, following(s))
	}
	rapid.Check(t, func(t *rapid.T) {
		s, key := anyKey.Draw(t, "s"), anyKey.Draw(t, "other")
		if after := following(s); after != "" && !strings.HasPrefix(key, s) {
			require.Equal(t, key < s, key < after, "nothing is between the keys with s before them and what follows")
		}
	})
}

func TestWhatKeysSurelyShare(t *testing.T) {
	for _, c := range []struct {
		after, before string
		same          string
	}{
		{"/registry/secrets/a/x", "/registry/secrets0", "/registry/secrets/"},
		{"/registry/secrets/a/x", "/registry/secrets/c", "/registry/secrets/"},
		{"/registry/secrets/a/x", "/registry/secrets/b", "/registry/secrets/a"},
		{"/registry/secrets/a/x", "/registry/secrets/a/z", "/registry/secrets/a/"},
		{"a", "z", ""},
		{"ab", "ab\x00", "ab"},
	} {
		require.Equal(t, len(c.same), surelyShared(c.after, c.before), "%s to %s", c.after, c.before)
	}
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(anyKey, 3, 3, rapid.ID).Draw(t, "keys")
		slices.Sort(keys)
		require.True(t, strings.HasPrefix(keys[1], keys[0][:surelyShared(keys[0], keys[2])]))
	})
}

func TestHalfway(t *testing.T) {
	for _, c := range []struct {
		after, before string
		same          int
		from, to      string // what the middle is between
	}{
		{"a", "z", 0, "m", "n"},
		{"ns/a", "ns/z", 3, "ns/m", "ns/n"},
		{"ns/aa", "ns/ab", 4, "ns/aaS", "ns/aaU"},
		{"ns/a", "ns0", 3, "ns/m", "ns/o"},
		{"ns/zzzzzzzzzz", "ns0", 3, "ns/zzzzzzzzzz", "ns/zzzzzzzzzz"},
		{"a\xff", "a\xffz", 2, "a\xffS", "a\xffT"},
		{"\x00", "\xff", 0, "S", "T"},
		{"ns/a-00000000", "ns/a-99999999", 5, "ns/a-4", "ns/a-5"},
	} {
		middle := halfway(c.after, c.before, c.same)
		require.GreaterOrEqual(t, middle, c.from)
		require.LessOrEqual(t, middle, c.to)
	}
}

// A probe must not leave its gap, or keys would be read twice or never.
func TestAProbeIsInItsGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ends := rapid.SliceOfNDistinct(anyKey, 2, 2, rapid.ID).Draw(t, "ends")
		slices.Sort(ends)
		g := gap{after: ends[0], before: ends[1], count: 100, limit: minPage, branch: rapid.IntRange(0, 25).Draw(t, "branch")}
		p := g.probe()
		require.Greater(t, p.from, g.after)
		require.LessOrEqual(t, p.from, g.before)
	})
}

// Without a limit to what it may read, the search reads each object once.
func TestNoObjectIsReadTwiceOrForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(anyKey, 0, 150, rapid.ID).Draw(t, "names")
		for i := range keys {
			keys[i] = prefix + keys[i]
		}
		store := &shelf{objects: objectsOf(keys, func(i int) int { return i })}
		var spare atomic.Int64
		spare.Store(1 << 40)
		s := newSearch(store, 1<<20, &spare)
		n := 0
		for range s.values(t.Context(), prefix, following(prefix)) {
			n++
		}
		require.NoError(t, s.err)
		require.Equal(t, len(keys), n)
		require.Equal(t, int64(n), store.given.Load())
	})
}
