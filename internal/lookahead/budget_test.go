package lookahead

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nothing tells how large the objects are that were not read yet.
func TestWhatMayBeReadHoldsForObjectsOfMixedSizes(t *testing.T) {
	every := func(n, size int) func(int) int {
		return func(i int) int {
			if i%n == n/2 {
				return size
			}
			return 0
		}
	}
	all := func(size int) func(int) int { return every(1, size) }
	behindTheFirst := func(size int) func(int) int { return func(i int) int { return min(i, 1) * size } }
	for name, c := range map[string]struct {
		objects int
		large   func(int) int
	}{
		"one in nine of 700 KiB":       {560, every(9, 700<<10)},
		"one in ten of 100 KiB":        {2000, every(10, 100<<10)},
		"one of 700 KiB":               {500, every(500, 700<<10)},
		"three of 700 KiB":             {500, every(200, 700<<10)},
		"the second half of 30 KiB":    {2000, func(i int) int { return i / 1000 * (30 << 10) }},
		"the first half of 30 KiB":     {2000, func(i int) int { return (1999 - i) / 1000 * (30 << 10) }},
		"few of 700 KiB":               {20, all(700 << 10)},
		"few of 1.4 MiB":               {8, all(1400 << 10)},
		"one":                          {1, all(1400 << 10)},
		"a small one and 10 of 1.4 MB": {11, behindTheFirst(1400 << 10)},
		"a small one and 40 of 500 KB": {41, behindTheFirst(500 << 10)},
		"a large one and 40 small":     {41, func(i int) int { return max(0, 1-i) * (60 << 10) }},
	} {
		t.Run(name, func(t *testing.T) {
			store := &shelf{objects: objectsOf(numbered(c.objects), func(i int) int { return i / 3 })}
			store.size, store.large = 200, c.large
			var spare atomic.Int64
			spare.Store(spareBytes)
			s := newSearch(store, 1<<20, &spare)
			for range s.values(t.Context(), prefix, following(prefix)) {
			}
			t.Logf("%d DEKs, %d of %d KiB in %d reads", len(s.met), store.served.Load()>>10, store.all()>>10, store.reads.Load())
			require.LessOrEqual(t, store.served.Load(), min(store.all()/share, mostBytes)+spareBytes)
		})
	}
}

func TestWhatIsGrantedIsChargedBeforeItIsRead(t *testing.T) {
	var spare atomic.Int64
	spare.Store(1000)
	b, other := budget{spare: &spare}, budget{spare: &spare}
	b.expect(12_000)
	require.Equal(t, int64(1000), spare.Load(), "which is for all, and not used")
	require.Equal(t, int64(800), b.grant(800))
	require.Equal(t, int64(600), b.grant(600), "the share, and some of what is to spare")
	require.Equal(t, int64(600), spare.Load())
	require.Equal(t, int64(500), other.grant(500), "others have the rest")
	require.Equal(t, int64(100), b.grant(600))
	require.Zero(t, other.grant(1), "and then there is none")

	b.settle(600, 100)
	require.Equal(t, int64(500), spare.Load(), "what was not read is there again")
	b.settle(800, 100)
	b.giveBack(100)
	require.Equal(t, int64(500), spare.Load(), "as far as it was drawn")
	require.Equal(t, int64(200), b.spent)
	require.Equal(t, 2, b.pages)

	b.expect(1 << 50)
	require.Equal(t, int64(mostBytes+500-200), b.grant(1<<50), "a resource that is large without end")
	b.giveBack(mostBytes + 500 - 200)
	b.expect(0)
	require.Equal(t, 200-b.own, b.drawn, "what is beyond a share that shrinks is drawn")
	require.Equal(t, 500-b.drawn, spare.Load())

	rich := budget{spare: &spare, pages: mostPages - 1}
	rich.expect(1 << 30)
	require.Positive(t, rich.grant(1))
	rich.settle(1, 1)
	require.Zero(t, rich.grant(1))
}

// broken is a store that cannot be read.
type broken struct{}

func (broken) read(context.Context, part) (page, error) { return page{}, errors.New("broken") }

func TestASearchThatFailsLeavesToOthersWhatItWasGranted(t *testing.T) {
	var spare atomic.Int64
	spare.Store(spareBytes)
	s := newSearch(broken{}, 1, &spare)
	for range s.values(t.Context(), prefix, following(prefix)) {
	}
	require.EqualError(t, s.err, "broken")
	require.Equal(t, int64(spareBytes-framing), spare.Load())
}

func TestAPageThatIsTooMuchIsAskedForAsOneObjectAndThenPassedOver(t *testing.T) {
	require.Equal(t, int64(pageBytes), answer{tooMuch: true}.cost(), "what was under way has been read too")
	s := newSearch(nil, 1, new(atomic.Int64))
	s.seen = 1
	p := probe{gap: gap{after: "a", before: "z", count: 100, size: 300, limit: 8}, from: "m"}
	require.True(t, s.take(p, answer{tooMuch: true}, nil))
	require.Equal(t, []gap{{after: "a", before: "z", count: 100, size: 300, limit: 1}}, s.gaps)

	p.gap, s.gaps = s.gaps[0], nil
	require.True(t, s.take(p, answer{tooMuch: true}, nil))
	require.Equal(t, []gap{
		{after: "a", before: "m", count: 50, size: 300, limit: 1},
		{after: "m", before: "z", count: 49, size: 300, limit: 1},
	}, s.gaps, "one object cannot be read in parts")
}
