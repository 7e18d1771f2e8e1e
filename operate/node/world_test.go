package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A world is a model of a node, its plugins and its apiserver, in which the node does what Decide
// says, may be killed between any two things, and everything else does what it likes.
type world struct {
	bundles  []Wanted // all there may be, by index
	folder   int      // the one in the folder, -1 for none
	accepted []int    // newest first
	forgot   map[string]bool
	keys     map[string]string // which key each keyID had when it was well, as the node remembers it
	file     int               // the one whose file is in place, -1 for none, unread for one that cannot be read
	plugins  []Plugin
	born     int
	refused  Start // what did not pass its trial, once and for all

	effect  int   // the one that the apiserver has in effect, -1 if it is down
	closing []int // those that it had, and may still ask the plugins of
	told    told
	broken  []string // rules that were broken
}

const unread = -2

// told is what the node knows of the apiserver.
type told struct {
	at, known, current, settled bool
	effect                      int
}

const grace = time.Minute

var epoch = time.Unix(1_000_000, 0)

func newWorld(bundles ...Wanted) *world {
	return &world{bundles: bundles, folder: -1, file: -1, effect: -1, forgot: map[string]bool{}, keys: map[string]string{}}
}

func (w *world) clone() *world {
	c := *w
	c.accepted, c.plugins, c.closing = slices.Clone(w.accepted), slices.Clone(w.plugins), slices.Clone(w.closing)
	c.forgot, c.keys, c.broken = maps.Clone(w.forgot), maps.Clone(w.keys), nil
	return &c
}

// key is the same for worlds that nothing tells apart.
func (w *world) key() string {
	var plugins []string
	for _, p := range w.plugins {
		plugins = append(plugins, fmt.Sprint(p.KeyID, p.Settings, p.Files, p.State, p.Well, p.KeyIDHash, p.Linked, p.Named, p.Tried.Passed))
	}
	slices.Sort(plugins)
	slices.Sort(w.closing)
	return fmt.Sprint(w.folder, w.accepted, slices.Sorted(maps.Keys(w.forgot)), w.keys, w.file, strings.Join(plugins, ";"), w.effect, slices.Compact(w.closing), w.told, w.refused)
}

func (w *world) observation() Observation {
	o := Observation{Now: epoch, File: File{Known: w.file != unread}, Plugins: slices.Clone(w.plugins), Grace: grace, Fresh: time.Minute}
	if w.folder >= 0 {
		o.Candidate = &w.bundles[w.folder]
	}
	o.Refused = map[Start]string{}
	if w.refused != (Start{}) {
		o.Refused[w.refused] = "it is not fit"
	}
	for i, at := range w.accepted {
		b := w.bundles[at]
		b.Keys = maps.Clone(b.Keys)
		for keyID, key := range b.Keys {
			key.KeyIDHash = w.keys[keyID]
			b.Keys[keyID] = key
		}
		if i > 0 {
			maps.DeleteFunc(b.Keys, func(keyID string, _ Key) bool { return w.forgot[keyID] })
		}
		o.Accepted = append(o.Accepted, b)
	}
	if w.file >= 0 {
		o.File.Hash, o.File.KeyIDs = w.bundles[w.file].Config, slices.Sorted(maps.Keys(w.bundles[w.file].Keys))
	}
	a := Apiserver{Name: "a"}
	if w.told.at { // it may all look well, and yet not count
		a.At, a.Since, a.Config = epoch, epoch, w.bundles[w.told.effect].Config
		if w.told.settled || !w.told.current {
			a.Since = epoch.Add(-grace)
		}
	}
	switch {
	case !w.told.known:
		a.Problem = "it does not answer"
	case !w.told.current: // it was asked before the file changed
		a = Apiserver{Name: a.Name}
	}
	o.Apiservers = []Apiserver{a}
	return o
}

// needs tells whether the apiserver asks, or may ask next, the plugin of a keyID.
func (w *world) needs(keyID string) bool {
	all := append([]int{w.effect, w.file}, w.closing...)
	return slices.ContainsFunc(all, func(at int) bool {
		if at < 0 {
			return false
		}
		_, has := w.bundles[at].Keys[keyID]
		return has
	})
}

func (w *world) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func (w *world) at(instance string) *Plugin {
	i := slices.IndexFunc(w.plugins, func(p Plugin) bool { return p.Instance == instance })
	if i < 0 {
		return nil
	}
	return &w.plugins[i]
}

// index is that of a bundle by its hash.
func (w *world) index(hash string) int {
	return slices.IndexFunc(w.bundles, func(b Wanted) bool { return b.Hash == hash })
}

// files are those that a keyID has by the newest that says so.
func (w *world) wants(keyID string) (Key, bool) {
	for _, o := range w.observation().Accepted {
		if k, ok := o.Keys[keyID]; ok {
			return k, true
		}
	}
	return Key{}, false
}

// do does what the node does, and says which rules that breaks.
func (w *world) do(a Action) {
	p := w.at(a.Instance)
	switch a.Verb {
	case StartPlugin:
		w.born++
		if _, runs := w.wants(a.KeyID); !runs && w.refused == (Start{a.KeyID, a.Settings}) {
			w.breaks("%s is started, and was refused", a.KeyID)
		}
		key := w.bundles[w.index(a.Bundle)].Keys[a.KeyID]
		w.plugins = append(w.plugins, Plugin{Instance: fmt.Sprintf("i%04d", w.born), KeyID: a.KeyID, Settings: a.Settings, Files: key.Files})
	case LinkPlugin:
		if p.State != Serving {
			w.breaks("the stable name of %s leads to one that does not answer", a.KeyID)
		}
		if former := w.linked(a.KeyID); former != nil && former.live() && former.Well && !p.Well {
			w.breaks("the stable name of %s leads to one that does not work, and led to one that does", a.KeyID)
		}
		for i := range w.plugins {
			if w.plugins[i].KeyID == a.KeyID {
				w.plugins[i].Linked = false
			}
		}
		p.Linked, p.Named = true, true
	case SyncFiles:
		key, ok := w.bundles[w.index(a.Bundle)].Keys[a.KeyID]
		if !ok {
			w.breaks("files of %s, which nothing asks for", a.KeyID)
		}
		p.Files, p.Tried = key.Files, Tried{}
	case RememberKey:
		w.keys[a.KeyID] = a.KeyIDHash
	case AcceptBundle:
		w.accept(w.index(a.Bundle))
	case PlaceFile:
		w.place(w.index(a.Bundle))
	case ForgetKey:
		if w.needs(a.KeyID) {
			w.breaks("%s is forgotten, and the apiserver needs it", a.KeyID)
		}
		w.forgot[a.KeyID] = true
		w.trim()
	case StopPlugin:
		if w.needs(a.KeyID) && p.Linked && !w.stays(a) {
			w.breaks("%s is stopped, and the apiserver needs it", a.KeyID)
		}
		if w.needs(a.KeyID) && p.Named && !w.stays(a) {
			w.breaks("%s is stopped, no other stands in its place, and the apiserver may be connected to it", a.KeyID)
		}
		if next := w.linked(a.KeyID); w.needs(a.KeyID) && p.Named && p.Well && next != nil && !next.Well {
			w.breaks("%s is stopped and works, and what stands in its place does not", a.KeyID)
		}
		p.State = Ending
	case ClearPlugin:
		if p.State != Ended {
			w.breaks("what is left of %s is removed while it runs", a.KeyID)
		}
		w.plugins = slices.DeleteFunc(w.plugins, func(q Plugin) bool { return q.Instance == a.Instance })
	}
}

// linked is the instance that has the stable name of a keyID.
func (w *world) linked(keyID string) *Plugin {
	i := slices.IndexFunc(w.plugins, func(p Plugin) bool { return p.KeyID == keyID && p.Linked })
	if i < 0 {
		return nil
	}
	return &w.plugins[i]
}

// fits tells whether a plugin passes: it has the key that is expected, and, where it takes the place of
// another, opens what that wrapped.
func (w *world) fits(p Plugin) bool {
	_, runs := w.wants(p.KeyID)
	expected := ""
	if w.folder >= 0 {
		expected = w.bundles[w.folder].Keys[p.KeyID].KeyIDHash
	}
	return (!runs || p.KeyIDHash == w.keys[p.KeyID]) && (expected == "" || expected == p.KeyIDHash)
}

// stays tells whether another instance has the stable name and answers.
func (w *world) stays(a Action) bool {
	return slices.ContainsFunc(w.plugins, func(q Plugin) bool {
		return q.KeyID == a.KeyID && q.Instance != a.Instance && q.Linked && q.State == Serving
	})
}

func (w *world) accept(at int) {
	if len(w.accepted) == 0 && w.file >= 0 {
		for keyID := range w.bundles[w.file].Keys {
			if _, has := w.bundles[at].Keys[keyID]; !has {
				w.breaks("%s is accepted though nothing is known, and the file in place has keyID %s", w.bundles[at].Hash, keyID)
			}
		}
	}
	for keyID, key := range w.bundles[at].Keys {
		now, runs := w.wants(keyID)
		if runs && now.Settings == key.Settings {
			continue
		}
		good := slices.ContainsFunc(w.plugins, func(p Plugin) bool {
			return p.KeyID == keyID && p.Settings == key.Settings && p.State == Serving && p.Well && p.Tried.Passed && (runs || w.isOfNamed(p))
		})
		if !good {
			w.breaks("%s is accepted, and keyID %s was not seen to work with the key that was expected", w.bundles[at].Hash, keyID)
		}
	}
	w.accepted = append([]int{at}, w.accepted...)
	for keyID := range w.bundles[at].Keys {
		delete(w.forgot, keyID)
	}
	w.trim()
}

// isOfNamed tells whether one has the key of all that an apiserver may be connected to.
func (w *world) isOfNamed(p Plugin) bool {
	return !slices.ContainsFunc(w.plugins, func(q Plugin) bool {
		return q.KeyID == p.KeyID && q.Settings != p.Settings && q.Named && q.State != Ended && q.KeyIDHash != p.KeyIDHash
	})
}

func (w *world) place(at int) {
	for keyID := range w.bundles[at].Keys {
		if !slices.ContainsFunc(w.plugins, func(p Plugin) bool { return p.KeyID == keyID && p.Linked && p.State == Serving }) {
			w.breaks("the file names %s, and its plugin does not answer", keyID)
		}
	}
	w.file = at
	w.told.current, w.told.settled = false, false
}

// trim is what [kept.trimmed] does.
func (w *world) trim() {
	seen, left := map[string]bool{}, []int(nil)
	for i, at := range w.accepted {
		needed := i == 0
		for keyID := range w.bundles[at].Keys {
			needed = needed || !seen[keyID] && !w.forgot[keyID]
			seen[keyID] = true
		}
		if needed {
			left = append(left, at)
		}
	}
	w.accepted = left
	maps.DeleteFunc(w.keys, func(keyID string, _ string) bool { _, has := w.wants(keyID); return !has })
	maps.DeleteFunc(w.forgot, func(keyID string, _ bool) bool {
		return !slices.ContainsFunc(left, func(at int) bool { _, has := w.bundles[at].Keys[keyID]; return has })
	})
}

// An event is one thing that happens. It is nil if it cannot happen now.
type event struct {
	name string
	do   func(*world)
}

// events are all that can happen in a world.
func (w *world) events() []event {
	var all []event
	can := func(name string, do func(*world)) { all = append(all, event{name, do}) }
	n := len(Decide(w.observation()).Actions)
	for i := range n {
		can(fmt.Sprintf("the node does %d of %d things, and is killed", i+1, n), func(w *world) { w.round(i + 1) })
	}
	for i, p := range w.plugins {
		switch p.State {
		case Starting:
			can("answers", func(w *world) { w.plugins[i].State = Serving })
			can("answers well", func(w *world) {
				w.plugins[i].State, w.plugins[i].Well, w.plugins[i].KeyIDHash = Serving, true, "key of "+p.KeyID
			})
			if p.Settings == "other" {
				can("answers well, with another key", func(w *world) {
					w.plugins[i].State, w.plugins[i].Well, w.plugins[i].KeyIDHash = Serving, true, "another key of "+p.KeyID
				})
			}
		case Serving:
			if p.Well {
				can("is ill", func(w *world) { w.plugins[i].Well = false })
			}
			if p.Well && !p.Tried.Passed {
				can("passes its trial", func(w *world) { w.plugins[i].Tried.Passed = w.fits(p) })
			}
			if !p.Named && w.refused == (Start{}) {
				can("is refused", func(w *world) { w.refused = Start{p.KeyID, p.Settings} })
			}
		case Silent:
			can("answers again", func(w *world) { w.plugins[i].State = Serving })
		}
		if p.live() && p.Named {
			can("is silent", func(w *world) { w.plugins[i].State, w.plugins[i].Well = Silent, false })
		}
		if p.State != Ended {
			can("ends", func(w *world) { w.plugins[i].State, w.plugins[i].Well = Ended, false })
		}
	}
	for at := range w.bundles {
		if at != w.folder {
			can("the folder has "+w.bundles[at].Hash, func(w *world) { w.folder = at })
		}
	}
	for at := range w.bundles {
		if at != w.file {
			can("somebody puts the file of "+w.bundles[at].Hash+" in place", func(w *world) {
				w.file = at
				w.told.current, w.told.settled = false, false
			})
		}
	}
	if len(w.accepted) > 0 {
		can("what was kept is lost", func(w *world) { w.accepted, w.forgot, w.keys = nil, map[string]bool{}, map[string]string{} })
	}
	if w.folder >= 0 {
		can("the folder is gone", func(w *world) { w.folder = -1 })
	}
	return append(all, w.apiserverEvents()...)
}

func (w *world) apiserverEvents() []event {
	var all []event
	can := func(name string, do func(*world)) { all = append(all, event{name, do}) }
	if w.effect >= 0 && w.file >= 0 && w.effect != w.file {
		can("the apiserver takes the file into effect", func(w *world) {
			w.closing, w.effect = append(w.closing, w.effect), w.file
		})
	}
	if w.file >= 0 {
		can("the apiserver starts", func(w *world) { w.effect, w.closing = w.file, nil })
	}
	if w.effect >= 0 {
		can("the apiserver tells", func(w *world) {
			settled := w.told.known && w.told.current && w.told.settled && w.told.effect == w.effect
			w.told = told{at: true, known: true, current: true, effect: w.effect, settled: settled}
		})
	}
	if w.told.known {
		can("the apiserver does not answer", func(w *world) { w.told.known, w.told.settled = false, false })
	}
	if w.told.known && w.told.current && !w.told.settled && w.told.effect == w.effect {
		can("time passes", func(w *world) { w.told.settled, w.closing = true, nil })
	}
	return all
}

// round is a round of the node that ends after some of the things to do. A node that is killed
// does not know whom it told to end.
func (w *world) round(most int) {
	actions := Decide(w.observation()).Actions
	for _, a := range actions[:most] {
		w.do(a)
	}
}
