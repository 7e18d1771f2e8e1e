package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func wants(revision uint64, keys map[string]Key) Wanted {
	w := Wanted{Revision: revision, Keys: keys, Hash: "r" + string(rune('0'+revision)), Config: "config"}
	ids := make([]string, 0, len(keys))
	for keyID := range keys {
		ids = append(ids, keyID)
	}
	slices.Sort(ids)
	w.Config += " " + strings.Join(ids, ",")
	return w
}

// small are sets of bundles of which every world can be looked into that is some steps away.
func small() map[string][]Wanted {
	one, other, new := Key{Settings: "s", Files: "f"}, Key{Settings: "other", Files: "f"}, Key{Settings: "s", Files: "new"}
	return map[string][]Wanted{
		"a key goes":                  {wants(1, map[string]Key{"1": one}), wants(2, map[string]Key{})},
		"a key takes another's place": {wants(1, map[string]Key{"1": one}), wants(2, map[string]Key{"1": one, "2": one}), wants(3, map[string]Key{"2": one})},
		"another program":             {wants(1, map[string]Key{"1": one}), wants(2, map[string]Key{"1": other})},
		"another credential":          {wants(1, map[string]Key{"1": one}), wants(2, map[string]Key{"1": new})},
	}
}

// A node that is killed after each thing it does, plugins that fall ill and end, an apiserver that
// is slow, silent or restarted, a file that somebody else changed, and a disk that is lost.
func TestNoRuleIsBrokenInAnyWorldOfASmallMove(t *testing.T) {
	for name, bundles := range small() {
		t.Run(name, func(t *testing.T) { search(t, bundles, 8_000) })
	}
}

// search looks into the worlds that are nearest to the beginning, so many of them.
func search(t *testing.T, bundles []Wanted, most int) {
	type step struct{ from, by string }
	begin := newWorld(bundles...)
	begin.folder = 0
	begin.calm(60) // with the first in effect
	begin.folder = 1
	came := map[string]step{begin.key(): {}}
	queue := []*world{begin}
	for len(queue) > 0 && len(came) < most {
		w := queue[0]
		queue = queue[1:]
		at := w.key()
		for _, e := range w.events() {
			next := w.clone()
			e.do(next)
			if len(next.broken) > 0 {
				way := []string{e.name}
				for s := came[at]; s.by != ""; s = came[s.from] {
					way = append([]string{s.by}, way...)
				}
				t.Fatalf("%s\n%s", strings.Join(way, "\n"), next.broken)
			}
			if _, known := came[next.key()]; !known && len(next.plugins) <= 4 {
				came[next.key()] = step{at, e.name}
				queue = append(queue, next)
			}
		}
	}
	require.Greater(t, len(came), 500)
}

// drawn are bundles of up to three keyIDs, whose programs and credentials change.
func drawn(t *rapid.T) []Wanted {
	var all []Wanted
	for i := range rapid.IntRange(1, 6).Draw(t, "bundles") {
		keys := map[string]Key{}
		for _, keyID := range []string{"1", "2", "3"} {
			if rapid.Bool().Draw(t, "has") {
				keys[keyID] = Key{
					Settings:  rapid.SampledFrom([]string{"s", "other"}).Draw(t, "settings"),
					Files:     rapid.SampledFrom([]string{"f", "new"}).Draw(t, "files"),
					KeyIDHash: rapid.SampledFrom([]string{"", "", "key of " + keyID, "another"}).Draw(t, "key_id"),
				}
			}
		}
		all = append(all, wants(uint64(i+1), keys))
	}
	return all
}

func TestNoRuleIsBrokenOnAnyWayThroughManyBundles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(drawn(t)...)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			e := rapid.SampledFrom(w.eventsAndCalm(t)).Draw(t, "event")
			e.do(w)
			if len(w.broken) > 0 {
				t.Fatalf("%s: %s", e.name, w.broken)
			}
		}
	})
}

// letGo is what an operator does who looks at what it waits for. If it is not known what was in effect, the file is
// moved away. What hangs and is of no bundle that is kept, so that nobody knows which key it has, is ended.
func (w *world) letGo() {
	if len(w.accepted) == 0 {
		w.file = -1
	}
	for i := range w.plugins {
		p := &w.plugins[i]
		kept := slices.ContainsFunc(w.accepted, func(at int) bool { return hasKey(&w.bundles[at], p.KeyID) })
		if p.State == Silent && !kept {
			p.State = Ended
		}
	}
}

// eventsAndCalm are the events, and a while in which all goes well: without one little is ever in effect.
func (w *world) eventsAndCalm(t *rapid.T) []event {
	return append(w.events(), event{"all is well for a while", func(w *world) { w.calm(rapid.IntRange(1, 12).Draw(t, "rounds")) }})
}

// calm goes on with a world in which all goes well from now on.
func (w *world) calm(rounds int) {
	w.refused = Start{} // the bundle has another one
	for range rounds {
		w.round(len(Decide(w.observation()).Actions))
		for i := range w.plugins {
			p := &w.plugins[i]
			switch p.State {
			case Starting, Serving:
				p.State, p.Well, p.KeyIDHash = Serving, true, "key of "+p.KeyID
				p.Tried.Passed = w.fits(*p)
			case Ending:
				p.State = Ended
			}
		}
		if w.file >= 0 {
			w.effect, w.closing = w.file, nil
			w.told = told{at: true, known: true, current: true, settled: true, effect: w.effect}
		}
	}
}

func TestWhateverHappenedTheNewestBundleComesIntoEffectOnceAllIsWell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bundles := drawn(t)
		for i := range bundles {
			for keyID, key := range bundles[i].Keys {
				key.KeyIDHash = ""
				bundles[i].Keys[keyID] = key
			}
		}
		w := newWorld(bundles...)
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			rapid.SampledFrom(w.eventsAndCalm(t)).Draw(t, "event").do(w)
		}
		w.folder = len(bundles) - 1
		w.letGo()
		w.calm(60)
		require.Empty(t, w.broken)
		require.Empty(t, Decide(w.observation()))
		require.Equal(t, []int{w.folder}, w.accepted)
		require.Equal(t, bundles[w.folder].Config, w.bundles[w.file].Config)
		require.Len(t, w.plugins, len(bundles[w.folder].Keys), "one plugin for each keyID, and no other")
		for _, p := range w.plugins {
			key := bundles[w.folder].Keys[p.KeyID]
			require.Equal(t, []any{key.Settings, key.Files, Serving, true}, []any{p.Settings, p.Files, p.State, p.Linked})
		}
	})
}
