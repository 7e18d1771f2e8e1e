package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Verb is what is done.
type Verb string

// The verbs, in the order in which they are done.
const (
	// StartPlugin starts an instance for KeyID with Settings, as the bundle of the hash has them.
	StartPlugin Verb = "start"
	// LinkPlugin makes the stable name of KeyID lead to Instance.
	LinkPlugin Verb = "link"
	// SyncFiles gives Instance the credentials and the CA that the bundle of the hash has.
	SyncFiles Verb = "sync"
	// RememberKey keeps the hash of the key_id that the plugin of KeyID names.
	RememberKey Verb = "remember"
	// AcceptBundle makes the candidate the first of the accepted.
	AcceptBundle Verb = "accept"
	// PlaceFile puts the configuration file of the bundle of the hash in place.
	PlaceFile Verb = "place"
	// ForgetKey takes KeyID out of all accepted bundles but the first.
	ForgetKey Verb = "forget"
	// StopPlugin tells Instance to end.
	StopPlugin Verb = "stop"
	// ClearPlugin removes what an instance left that is gone.
	ClearPlugin Verb = "clear"
)

// Action is one thing to do.
type Action struct {
	Verb     Verb
	KeyID    string
	Settings string
	Instance string
	Bundle   string
	// KeyIDHash is what is remembered.
	KeyIDHash string
}

// Decision is what is to be done now, and what the rest waits for.
type Decision struct {
	Actions []Action
	// Waits are the reasons why the bundle in the folder is not in effect, and why what is no
	// longer wanted is still there; none if all is as it should be.
	Waits []string
}

// Decide says what is next. It is a function of what was observed alone, and what was not seen
// makes nothing stop, go or be put in place.
func Decide(o Observation) Decision {
	d := &decider{o: o}
	if len(o.Accepted) > 0 {
		d.current = &o.Accepted[0]
	}
	if c := o.Candidate; c != nil && (d.current == nil || c.Hash != d.current.Hash) && d.newer(c) {
		d.candidate = c
	}
	for _, keyID := range d.keyIDs() {
		d.run(keyID)
	}
	d.accept()
	d.place()
	d.forget()
	return d.out
}

type decider struct {
	o                  Observation
	current, candidate *Wanted
	out                Decision
}

func (d *decider) do(a Action) { d.out.Actions = append(d.out.Actions, a) }

func (d *decider) wait(format string, args ...any) {
	d.out.Waits = append(d.out.Waits, fmt.Sprintf(format, args...))
}

func (d *decider) keyIDs() []string {
	all := map[string]bool{}
	for _, w := range d.o.wanted(d.candidate) {
		for keyID := range w.Keys {
			all[keyID] = true
		}
	}
	for _, p := range d.o.Plugins {
		all[p.KeyID] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// accepted is what the newest accepted bundle that has a keyID asks for under it.
func (d *decider) accepted(keyID string) (key Key, bundle string, ok bool) {
	for _, w := range d.o.Accepted {
		if key, ok := w.Keys[keyID]; ok {
			return key, w.Hash, true
		}
	}
	return Key{}, "", false
}

// tried is what the candidate asks for that no accepted bundle does.
func (d *decider) tried(keyID string) (key Key, ok bool) {
	if d.candidate == nil {
		return Key{}, false
	}
	key, ok = d.candidate.Keys[keyID]
	if now, _, has := d.accepted(keyID); has && now.Settings == key.Settings {
		return Key{}, false
	}
	return key, ok
}

func (d *decider) instances(keyID string) []Plugin {
	var all []Plugin
	for _, p := range d.o.Plugins {
		if p.KeyID == keyID {
			all = append(all, p)
		}
	}
	return all
}

// chosen is the instance of a keyID that is to stay among those with the same settings: the one
// that has the stable name, or else one that serves, or else any that lives.
func (d *decider) chosen(keyID, settings string) (Plugin, bool) {
	var best Plugin
	rank := 0
	for _, p := range d.instances(keyID) {
		if p.Settings != settings || !p.live() {
			continue
		}
		r := 1
		if p.State == Serving {
			r = 2
		}
		if p.State == Serving && p.Linked {
			r = 3
		}
		if r > rank || r == rank && p.Instance < best.Instance {
			best, rank = p, r
		}
	}
	return best, rank > 0
}

// serves is the instance that a keyID's stable name leads to, if it answers and is the one that
// the accepted bundles ask for.
func (d *decider) serves(keyID string) bool {
	key, _, ok := d.accepted(keyID)
	p, there := d.chosen(keyID, key.Settings)
	return ok && there && p.State == Serving && p.Linked
}

// run says what is next for the instances of one keyID.
func (d *decider) run(keyID string) {
	if key, bundle, ok := d.accepted(keyID); ok {
		d.keep(keyID, key, bundle)
	}
	if key, ok := d.tried(keyID); ok && !d.refused(keyID, key) {
		d.start(keyID, key, d.candidate.Hash)
		if p, ok := d.chosen(keyID, key.Settings); ok && p.Named {
			d.sync(p, key, d.candidate.Hash)
		}
	}
	for _, p := range d.instances(keyID) {
		switch {
		case p.State == Ended:
			d.do(Action{Verb: ClearPlugin, KeyID: keyID, Instance: p.Instance})
		case (p.live() || p.State == Silent) && d.dispensable(p):
			d.do(Action{Verb: StopPlugin, KeyID: keyID, Instance: p.Instance})
		}
	}
}

// keep has the instance run that an accepted bundle asks for, under the stable name and with its
// files.
func (d *decider) keep(keyID string, key Key, bundle string) {
	d.start(keyID, key, bundle)
	p, ok := d.chosen(keyID, key.Settings)
	if !ok {
		return
	}
	d.sync(p, key, bundle)
	if p.State == Serving && !p.Linked && !d.worse(p) {
		d.do(Action{Verb: LinkPlugin, KeyID: keyID, Instance: p.Instance})
	}
	if p.State == Serving && p.Well && p.KeyIDHash != key.KeyIDHash {
		d.do(Action{Verb: RememberKey, KeyID: keyID, Instance: p.Instance, KeyIDHash: p.KeyIDHash})
	}
}

// sync gives an instance the files that a bundle asks for.
func (d *decider) sync(p Plugin, key Key, bundle string) {
	if p.Files != key.Files {
		d.do(Action{Verb: SyncFiles, KeyID: p.KeyID, Instance: p.Instance, Bundle: bundle})
	}
}

// refused tells that the trial of what the candidate asks for has ended for good.
func (d *decider) refused(keyID string, key Key) bool {
	_, refused := d.o.Refused[Start{keyID, key.Settings}]
	return refused
}

// worse tells that an instance does not work, and that the one does that has the stable name.
func (d *decider) worse(p Plugin) bool {
	return !p.Well && slices.ContainsFunc(d.instances(p.KeyID), func(q Plugin) bool { return q.Linked && q.live() && q.Well })
}

func (d *decider) start(keyID string, key Key, bundle string) {
	if _, ok := d.chosen(keyID, key.Settings); ok {
		return
	}
	if d.o.Now.Before(d.o.NotBefore[Start{keyID, key.Settings}]) {
		return
	}
	d.do(Action{Verb: StartPlugin, KeyID: keyID, Settings: key.Settings, Bundle: bundle})
}

// dispensable tells that nobody needs an instance: another one stands in its place, or it was
// never more than tried, or with other files than it is to have, or its keyID is gone for good.
func (d *decider) dispensable(p Plugin) bool {
	if key, ok := d.tried(p.KeyID); ok && key.Settings == p.Settings {
		best, _ := d.chosen(p.KeyID, p.Settings)
		return (best.Instance != p.Instance || p.Files != key.Files || d.refused(p.KeyID, key)) && !p.Named
	}
	if key, _, ok := d.accepted(p.KeyID); ok {
		best, _ := d.chosen(p.KeyID, key.Settings)
		return best.Instance != p.Instance && (d.serves(p.KeyID) && (best.Well || !p.Well) || !p.Named)
	}
	return !p.Named || d.gone(p.KeyID)
}

// place puts the file in place if every plugin that it names answers under its stable name.
func (d *decider) place() {
	switch {
	case d.current == nil:
		return
	case !d.o.File.Known:
		d.wait("the configuration file cannot be read, so it is not known what it names")
		return
	case d.o.File.Hash == d.current.Config:
		d.follow()
		return
	}
	var missing []string
	for _, keyID := range slices.Sorted(maps.Keys(d.current.Keys)) {
		if !d.serves(keyID) {
			missing = append(missing, keyID)
		}
	}
	if missing != nil {
		d.wait("the configuration file of revision %d waits for the plugins of keyID %s", d.current.Revision, strings.Join(missing, ", "))
		return
	}
	d.do(Action{Verb: PlaceFile, Bundle: d.current.Hash})
}

// follow tells of apiservers that have another file in effect than the one in place, or were not asked since it
// is. One that does not answer is no reason: it may wait for the plugins.
func (d *decider) follow() {
	for _, a := range d.o.Apiservers {
		switch why := d.silent(a); {
		case a.Problem != "":
		case why != "":
			d.wait("apiserver %s may have another configuration file in effect than the one in place: %s", a.Name, why)
		case a.Config != "" && a.Config != d.current.Config:
			d.wait("apiserver %s has not taken the configuration file in place: it has %s in effect, and takes another at its next start or, where it follows its file, within a minute or two: see its log", a.Name, a.Config)
		}
	}
}

// forget lets go of keyIDs that only former bundles have and nobody needs.
func (d *decider) forget() {
	if d.current == nil {
		return
	}
	former := map[string]bool{}
	for _, w := range d.o.Accepted[1:] {
		for keyID := range w.Keys {
			_, has := d.current.Keys[keyID]
			former[keyID] = !has
		}
	}
	for _, keyID := range slices.Sorted(maps.Keys(former)) {
		if former[keyID] && d.gone(keyID) {
			d.do(Action{Verb: ForgetKey, KeyID: keyID})
		} else if former[keyID] {
			d.wait("keyID %s stays: %s", keyID, d.needed(keyID))
		}
	}
}

// gone tells that no apiserver of this node can need a keyID.
func (d *decider) gone(keyID string) bool { return d.needed(keyID) == "" }

// needed is why it is not proven that no apiserver of this node needs a keyID, empty if it is.
func (d *decider) needed(keyID string) string {
	switch {
	case d.current == nil:
		return "no bundle is in effect"
	case hasKey(d.current, keyID), hasKey(d.candidate, keyID):
		return "a bundle has it"
	case !d.o.File.Known:
		return "the configuration file cannot be read"
	case d.o.File.Hash != d.current.Config:
		return "the configuration file in place is not that of the bundle in effect"
	case len(d.o.Apiservers) == 0:
		return "no apiserver of this node is named, so none tells that it does without"
	}
	for _, a := range d.o.Apiservers {
		if why := d.mayNeed(a); why != "" {
			return fmt.Sprintf("apiserver %s may need it: %s", a.Name, why)
		}
	}
	return ""
}

func hasKey(w *Wanted, keyID string) bool {
	if w == nil {
		return false
	}
	_, ok := w.Keys[keyID]
	return ok
}

// mayNeed is why an apiserver may have more in effect than the current bundle.
func (d *decider) mayNeed(a Apiserver) string {
	switch why := d.silent(a); {
	case why != "":
		return why
	case a.Config != d.current.Config:
		return fmt.Sprintf("it has %s in effect, and not %s", orNone(a.Config), d.current.Config)
	case d.o.Now.Sub(a.Since) < d.o.Grace:
		return fmt.Sprintf("it has the new file in effect, and for %s may go on with the former one", d.o.Grace)
	}
	return ""
}

// silent is why it is not known what an apiserver has in effect, empty if it is.
func (d *decider) silent(a Apiserver) string {
	age := d.o.Now.Sub(a.At)
	switch {
	case a.Problem != "":
		return a.Problem
	case a.At.IsZero() || a.Since.IsZero():
		return "it was not asked yet since the file changed"
	case age < 0 || age > d.o.Fresh:
		return "it has not told lately what it has in effect"
	}
	return ""
}

func orNone(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
