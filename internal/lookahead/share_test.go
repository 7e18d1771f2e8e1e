package lookahead

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

const many = 100_000

// The names of objects, as clusters have them.
var names = map[string]func(r *rand.Rand) []string{
	"numbered": func(*rand.Rand) (keys []string) {
		for i := range many {
			keys = append(keys, fmt.Sprintf("%sdefault/secret-%06d", prefix, i))
		}
		return keys
	},
	"in 200 namespaces of one size": func(r *rand.Rand) (keys []string) {
		for i := range many {
			keys = append(keys, fmt.Sprintf("%steam-%03d/token-%s", prefix, i/500, name(r, 10)))
		}
		return keys
	},
	"in namespaces of any name": func(r *rand.Rand) (keys []string) {
		var namespaces []string
		for range 200 {
			namespaces = append(namespaces, name(r, 3+r.IntN(12)))
		}
		for range many {
			keys = append(keys, fmt.Sprintf("%s%s/sh.helm.release.v1.%s.v%d", prefix, namespaces[r.IntN(200)], name(r, 6), r.IntN(100)))
		}
		return keys
	},
	"nine tenths in one namespace": func(r *rand.Rand) (keys []string) {
		for i := range many {
			namespace := "kube-system-of-tenants"
			if i%10 == 0 {
				namespace = fmt.Sprintf("team-%02d", i/10%50)
			}
			keys = append(keys, fmt.Sprintf("%s%s/app-%s", prefix, namespace, name(r, 10)))
		}
		return keys
	},
}

// Which DEKs they have, by their place in the order of keys, and which part of
// the DEKs is to be found.
var layouts = map[string]struct {
	dek   func(r *rand.Rand, i int) int
	share float64
}{
	"200 DEKs anywhere":                          {func(r *rand.Rand, _ int) int { return r.IntN(200) }, 0.99},
	"200 DEKs, each of neighbours":               {func(_ *rand.Rand, i int) int { return i / 500 }, 0.95},
	"2,000 DEKs anywhere":                        {func(r *rand.Rand, _ int) int { return r.IntN(2000) }, 0.97},
	"2,000 DEKs, each of neighbours":             {func(_ *rand.Rand, i int) int { return i / 50 }, 0.45}, // a page finds one
	"4,500 DEKs anywhere":                        {func(r *rand.Rand, _ int) int { return r.IntN(4500) }, 0.82},
	"one DEK":                                    {func(*rand.Rand, int) int { return 0 }, 1},
	"one DEK, and 200 in the last tenth":         {lastTenth(func(r *rand.Rand, _ int) int { return r.IntN(200) }), 0.95},
	"one DEK, and 200 neighbours' in that tenth": {lastTenth(func(_ *rand.Rand, i int) int { return i / 50 }), 0.95},
	"one DEK, and 200 in every tenth object": {func(r *rand.Rand, _ int) int {
		if r.IntN(10) > 0 {
			return 0
		}
		return 1 + r.IntN(200)
	}, 0.85},
}

func lastTenth(dek func(*rand.Rand, int) int) func(*rand.Rand, int) int {
	return func(r *rand.Rand, i int) int {
		if i < many*9/10 {
			return 0
		}
		return 1 + dek(r, i)
	}
}

// shelf is a store in memory.
type shelf struct {
	objects
	served atomic.Int64 // bytes
	reads  atomic.Int64
	given  atomic.Int64 // objects
}

func (s *shelf) read(_ context.Context, of part) (page, error) {
	first, _ := slices.BinarySearch(s.keys, of.from)
	last, _ := slices.BinarySearch(s.keys, of.before)
	p := page{count: int64(max(0, last-first))}
	for i := first; i < min(last, first+of.limit); i++ {
		p.objects = append(p.objects, object{s.keys[i], sealed(s.deks[i], s.sizeOf(i))})
	}
	s.reads.Add(1)
	if p.size() > of.most {
		s.served.Add(min(p.size(), pageBytes)) // which is under way by the time that it is refused
		return page{}, errTooMuch
	}
	s.given.Add(int64(len(p.objects)))
	s.served.Add(p.size() + framing)
	return p, nil
}

// all is how many bytes it takes to read everything.
func (s *shelf) all() int64 {
	n := int64(0)
	for i, key := range s.keys {
		n += int64(len(key) + len(sealed(0, s.sizeOf(i))))
	}
	return n
}

// This is the promise: a tenth of what an apiserver reads itself, and nearly all
// DEKs that matter.
func TestATenthOfTheBytesFindsNearlyAllDEKs(t *testing.T) {
	for naming, keys := range names {
		for layout, l := range layouts {
			t.Run(naming+", "+layout, func(t *testing.T) {
				r := random()
				store := &shelf{objects: objectsOf(keys(r), func(i int) int { return l.dek(r, i) })}
				var spare atomic.Int64
				spare.Store(spareBytes)
				s := newSearch(store, 1<<20, &spare)
				for range s.values(t.Context(), prefix, following(prefix)) {
				}
				t.Logf("%d of %d, %d reads, dry %d %.2f%%", len(s.met), store.distinct(), store.reads.Load(), s.dry, 100*float64(store.served.Load())/float64(store.all()))
				require.LessOrEqual(t, store.served.Load(), store.all()/10)
				require.GreaterOrEqual(t, float64(len(s.met)), l.share*float64(store.distinct()))
				require.LessOrEqual(t, store.reads.Load(), int64(mostPages+abreast))
			})
		}
	}
}

func TestWhatOneDEKHasIsHardlyRead(t *testing.T) {
	o := objectsOf(names["numbered"](random()), func(int) int { return 0 })
	server, all := o.serve(t)
	require.Equal(t, []int{0}, found(t, server))
	require.Less(t, server.Served(), all/50)
}

// What is in no KMS provider is no reason to go on.
func TestWhatHasNoDEKIsHardlyRead(t *testing.T) {
	o := objectsOf(names["numbered"](random()), func(int) int { return 0 })
	server, all := o.serve(t)
	for _, key := range o.keys {
		server.Store(key, make([]byte, o.size))
	}
	require.Empty(t, found(t, server))
	require.Less(t, server.Served(), all/50)
}

func TestTheSameObjectsAreLookedThroughInTheSameWay(t *testing.T) {
	r := random()
	server, all := objectsOf(names["in namespaces of any name"](r), func(int) int { return r.IntN(200) }).serve(t)
	first := found(t, server)
	require.Len(t, first, 200)
	require.LessOrEqual(t, server.Served(), all/10)
	require.Equal(t, first, found(t, server))
}
