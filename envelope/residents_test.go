package envelope

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// list reads one object under each of n DEKs, in order, and returns how many of
// them the plugin had to unwrap. set tells the DEKs of several lists apart.
func list(c *cache, set string, n int) int {
	calls := 0
	for i := range n {
		calls += look(c, fmt.Sprint(set, i))
	}
	return calls
}

func look(c *cache, name string) int {
	if c.find([]byte(name)) != nil {
		return 0
	}
	c.add([]byte(name), &knownDEK{keyID: name})
	return 1
}

// atMost is how many calls a repeated list of n DEKs costs.
func atMost(most, n int) int { return n - most + max(most/64, 1) + 1 }

// One DEK more than are kept, and each read of the list would call the plugin,
// if the one went that was used longest ago.
func TestARepeatedListOfTooManyDEKsFindsMostOfThem(t *testing.T) {
	for _, c := range []struct{ max, n int }{{4096, 4500}, {512, 513}, {512, 1024}, {128, 140}, {16, 20}} {
		cache := newCache(c.max)
		require.Equal(t, c.n, list(cache, "", c.n))
		for range 4 {
			require.LessOrEqual(t, list(cache, "", c.n), atMost(c.max, c.n), "%d of %d", c.max, c.n)
		}
	}
}

func TestThePluginIsCalledForFewReadsOfARepeatedList(t *testing.T) {
	const most, n = 16, 20
	var payloads [][]byte
	for range n {
		payloads = append(payloads, newRig(t).write("value"))
	}
	l, plugin := reader(t, func(o *Options) { o.MaxDEKs = most })
	called := 0
	for pass := range 4 {
		for _, p := range payloads {
			_, _, err := l.Open(t.Context(), p, testKey)
			require.NoError(t, err)
		}
		_, _, decrypts := plugin.calls()
		if pass > 0 {
			require.LessOrEqual(t, decrypts-called, atMost(most, n))
		}
		called = decrypts
	}
}

func TestADEKInUseOutlastsAListOfMany(t *testing.T) {
	const most, hot = 1024, 10
	c := newCache(most)
	list(c, "hot", hot)
	for i := range 5 * most {
		look(c, fmt.Sprint("many", i))
		require.Zero(t, look(c, fmt.Sprint("hot", i%hot)), "used since the last %d were added", hot)
	}
}

// Nor does it matter that it comes when there is no room left.
func TestANewDEKThatIsUsedStays(t *testing.T) {
	const most = 256
	c := newCache(most)
	list(c, "dead", most)
	for i := range 2 * most {
		require.Equal(t, 1, look(c, fmt.Sprint("new", i)))
		for j := range min(i, most/2) {
			require.Zero(t, look(c, fmt.Sprint("new", i-j)))
		}
	}
	require.LessOrEqual(t, len(c.residents.newcomers), most/64+1, "the others have settled")
}

func TestDEKsInUseTakeThePlacesOfThoseThatAreNot(t *testing.T) {
	const most = 512
	for _, n := range []int{100, 500, 560, 750} {
		c := newCache(most)
		list(c, "before", most)
		list(c, "before", most)
		calls := []int{}
		for range 6 {
			calls = append(calls, list(c, "now", n))
		}
		require.LessOrEqual(t, calls[5], max(0, atMost(most, n)), "calls of each list of %d: %v", n, calls)
	}
}

// Whatever is asked for in whatever order: among few DEKs again and again, or
// among more than there is room for.
func TestResidentsKeepTheirPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 150).Draw(t, "max")
		c := newCache(most)
		for range 4 * most {
			name := fmt.Sprint(rapid.IntRange(0, most+most/2).Draw(t, "DEK"))
			if rapid.IntRange(0, 99).Draw(t, "drop") == 99 {
				c.drop(func(d *knownDEK) bool { return d.keyID == name })
			}
			before, recent := used(c), c.age.Load()+1-min(uint64(max(most/64, 1)), c.age.Load()+1)
			if look(c, name) > 0 {
				requirePromises(t, before, used(c), recent)
			}
			require.Contains(t, used(c), name)
			require.LessOrEqual(t, c.len(), most)
			require.Equal(t, c.len(), inShards(c))
		}
	})
}

// requirePromises holds the coming of one DEK to what is promised: no more than
// one goes for it, and that was not used lately unless all were.
func requirePromises(t require.TestingT, before, after map[string]uint64, recent uint64) {
	require.LessOrEqual(t, len(before), len(after))
	for name, at := range before {
		if _, stayed := after[name]; stayed || at < recent {
			continue
		}
		for other, at := range before {
			require.GreaterOrEqual(t, at, recent, "%s went, which was in use, and %s was not", name, other)
		}
	}
}

// used is when each DEK of a cache was last used.
func used(c *cache) map[string]uint64 {
	all := map[string]uint64{}
	for _, e := range c.residents.all() {
		all[e.dek.keyID] = e.used.Load()
	}
	return all
}

// Of 128 two newcomers or three are few, and recent is what was used since the
// last two were admitted: at 98, when the next is the hundredth.
func TestWhoGoesForWhom(t *testing.T) {
	for name, c := range map[string]struct {
		settled, newcomer, away uint64 // when they were last used; the idlest of each
		newcomers               int
		goes                    string
		settles                 string
	}{
		"a newcomer goes for another":                           {settled: 10, newcomer: 97, newcomers: 3, goes: "newcomer"},
		"also for one that was away for longer":                 {settled: 10, newcomer: 97, newcomers: 3, away: 10, goes: "newcomer"},
		"a settled one for what was not away for as long":       {settled: 10, newcomer: 97, newcomers: 3, away: 11, goes: "settled", settles: "new"},
		"but not one in use":                                    {settled: 98, newcomer: 97, newcomers: 3, away: 99, goes: "newcomer"},
		"a settled one, if there are fewer newcomers":           {settled: 10, newcomer: 98, newcomers: 2, goes: "settled"},
		"a settled one, for the idlest of newcomers in use":     {settled: 10, newcomer: 98, newcomers: 3, goes: "settled", settles: "newcomer"},
		"one in use, if all are":                                {settled: 98, newcomer: 98, newcomers: 3, goes: "settled", settles: "newcomer"},
		"one in use, if all are, for what was away for shorter": {settled: 98, newcomer: 98, newcomers: 3, away: 99, goes: "settled", settles: "new"},
	} {
		t.Run(name, func(t *testing.T) {
			resident := func(name string, used uint64) *entry {
				e := &entry{dek: &knownDEK{keyID: name}}
				e.used.Store(used)
				return e
			}
			r := residents{max: 128, settled: []*entry{resident("settled", c.settled)}, newcomers: []*entry{resident("newcomer", c.newcomer)}}
			for len(r.newcomers) < c.newcomers {
				r.newcomers = append(r.newcomers, resident("another", 99))
			}
			for r.len() < r.max {
				r.settled = append(r.settled, resident("other", 99))
			}
			e := resident("new", 100)
			if c.away > 0 {
				r.left.note(resident("new", c.away), r.max)
			}
			require.Equal(t, c.goes, r.admit(e).dek.keyID)
			require.Equal(t, 128, r.len())
			settled := map[string]bool{}
			for _, e := range r.settled {
				settled[e.dek.keyID] = true
			}
			for _, name := range []string{"new", "newcomer"} {
				require.Equal(t, name == c.settles, settled[name], name)
			}
		})
	}
}

func TestDeparturesAreBounded(t *testing.T) {
	var d departures
	for i := range uint64(1000) {
		e := &entry{hash: i}
		e.used.Store(i + 1)
		d.note(e, 10)
		require.Equal(t, i+1, d.of(e))
		require.LessOrEqual(t, len(d.latest)+len(d.before), 20)
		if i >= 9 {
			require.Equal(t, i-8, d.of(&entry{hash: i - 9}), "the last 10 are known")
		}
	}
	require.Zero(t, d.of(&entry{hash: 5}))
}
