package keys_test

import (
	"fmt"
	"slices"

	"github.com/kube-atrest/atrest/internal/explore"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/keys"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// think is a turn of the controller: the records are stored, and the rest is to be done.
// With few it crashes when it has stored so many of them.
func (p *player) think(w town, few int) (to town, wrong string, many bool) {
	in := p.input(w)
	out := p.next(in, modelNow)
	to = w
	wrong = p.configsWrong(w, out)
	all := slices.Clone(p.records[w.records])
	for n, change := range out.Records {
		if n >= few {
			break
		}
		wrong += p.changeWrong(w, in, change)
		at := slices.IndexFunc(all, func(r keys.Record) bool { return r.ID == change.Record.ID })
		switch {
		case change.Verb == keys.Create && at >= 0 && w.lost:
			all[at], to.lost = change.Record, false
		case change.Verb == keys.Create && at >= 0:
			wrong += "I5: a keyID is used twice"
		case change.Verb == keys.Create:
			if all = append(all, change.Record); w.lost { // for good
				all, to.lost = slices.Delete(all, len(all)-2, len(all)-1), false
			}
		case change.Verb == keys.Delete:
			all = slices.Delete(all, at, at+1)
		default:
			all[at] = change.Record
		}
	}
	to.records, to.looked, to.asked = p.keep(all, 0), 0, [2]int16{}
	for i := range to.servers {
		if c, has := out.Configs[name(i)]; has {
			if id := p.config(c); id != w.servers[i].file {
				to.asked[i] = id
			}
		}
	}
	if to.wanted = 0; out.Preflight != nil {
		to.wanted = p.trial(out.Preflight.Hash, w.wish)
	}
	was, is := p.state(w), p.state(to)
	if is == nil || is.Migration == nil || was == nil || was.Migration == nil || was.Migration.Goal != is.Migration.Goal {
		to.migrating = ""
	}
	for _, a := range out.Actions {
		switch a := a.(type) {
		case rotation.Migrate:
			to.migrating = rotation.Running
		case rotation.RunAudit:
			if modelNow.After(a.After) {
				to.audited, to.auditSaw, to.auditAge = true, w.object, 0
			}
		}
	}
	if is == nil || is.Move == nil && is.OnePlugin.Target == "" || is.Move != nil && !slices.Contains([]rotation.Step{"prove", "remove", "confirm"}, is.Move.Step) {
		to.audited, to.auditSaw, to.auditAge = false, form{}, 0
	}
	if few < len(out.Records) {
		to = p.crash(to)
	}
	return to, wrong, len(out.Records) > 1
}

func (p *player) trial(hash string, wish int8) int16 {
	id, known := p.trialID[hash]
	if !known {
		id = int16(len(p.trials))
		p.trialID[hash], p.trials = id, append(p.trials, trial{hash, wish})
	}
	return id
}

// configsWrong is what is wrong with what the apiservers are to have.
func (p *player) configsWrong(w town, out keys.Output) string {
	var inUse, plain bool
	for _, r := range p.records[w.records] {
		inUse = inUse || !r.SettledAt.IsZero() && r.Mode != keys.Identity
		plain = plain || r.Mode == keys.Identity
	}
	for _, wish := range p.wishes {
		plain = plain || !slices.Contains(wish.Resources, "secrets")
	}
	for i := range w.servers {
		c, has := out.Configs[name(i)]
		if !has {
			continue
		}
		if inUse && !plain && c.Entries[0].Providers[0].Mode == keys.Identity {
			return "O23: plain text is to be written, and nobody wanted that"
		}
		if w.servers[i].effect < 0 && w.object == foreign {
			return "what somebody else configured is replaced"
		}
	}
	return ""
}

// changeWrong is what is wrong with a change of a record.
func (p *player) changeWrong(w town, in keys.Input, c keys.RecordChange) string {
	if c.Verb == keys.Create && c.Reason != keys.PutBack {
		return p.newWrong(w, in, c.Record)
	}
	if c.Reason == keys.Settled {
		key := int8(c.Record.ID)
		if c.Record.Mode == keys.Identity || !slices.Contains(c.Record.Resources, "secrets") {
			key = 0
		}
		if w.object.key != key || w.haunted && w.ghost.key != key {
			return "I3: a key is in use alone, and something is under another one"
		}
	}
	if c.Reason == keys.Abandoned && !c.Record.AbandonedAt.IsZero() && (w.object.key == int8(c.Record.ID) || w.ghost.key == int8(c.Record.ID)) && c.Record.ID > 0 {
		return "I4: a key is given up, and the object is under it"
	}
	if c.Verb == keys.Delete {
		return "I25: a key is pruned"
	}
	return ""
}

// newWrong is what is wrong with a new key.
func (p *player) newWrong(w town, in keys.Input, r keys.Record) string {
	wanted := p.wishes[w.wish]
	known := p.records[w.records]
	if w.lost {
		last := known[len(known)-1]
		if known = known[:len(known)-1]; slices.Contains(in.Present, last.ID) || p.scene.refused {
			return "I24: a key is made while another one is lost"
		}
	}
	for _, other := range known {
		switch {
		case other.ID >= r.ID:
			return fmt.Sprintf("I5: key %s comes after %s", r.ID, other.ID)
		case other.SettledAt.IsZero() && other.AbandonedAt.IsZero():
			return "I4: a key overtakes another"
		case other.State != nil && other.State.Migration != nil && other.AbandonedAt.IsZero() && p.writer(w) == other.ID:
			return "I14: a key is made while all is rewritten"
		case other.Mode == keys.KMS && p.writer(w) == other.ID && wanted.Plugin != nil && p.keyIDOf(string(wanted.Plugin.Settings), 0) == p.keyIDOf(p.settingsOf(w, other.ID), w.version):
			return "O12: the same KEK has another key"
		case other.Mode == r.Mode && p.writer(w) == other.ID && r.Plugin == nil:
			return "I6: the same wish makes another key"
		}
	}
	if r.Mode == keys.KMS {
		for i := range w.servers {
			if t := w.tried[i]; t == 0 || p.trials[t].wish != w.wish || wanted.refused {
				return "I19: a key is made of what was not tried well everywhere"
			}
		}
	}
	return ""
}

// writer is the key in use.
func (p *player) writer(w town) (id bundle.KeyID) {
	for _, r := range p.records[w.records] {
		if !r.SettledAt.IsZero() {
			id = r.ID
		}
	}
	return id
}

// crash leaves the controller with what is stored.
func (p *player) crash(w town) town {
	w.asked, w.wanted, w.migrating, w.audited, w.auditSaw, w.auditAge, w.looked = [2]int16{}, 0, "", false, form{}, 0, modelMaxAge+1
	return w
}

// unreadable says that an apiserver cannot read the object.
func (p *player) unreadable(w town) string {
	for _, h := range w.servers {
		if h.up && h.effect != 0 && !p.reads(h, w.object) {
			return "I1, I3: the object cannot be read"
		}
	}
	return ""
}

// moves is everything that can happen.
func (p *player) moves(w town) []explore.Move[town] {
	var all []explore.Move[town]
	add := func(what string, to town, wrong string) {
		if to != w || wrong != "" {
			if to.mayMeddle == p.meddles { // or else somebody did it who is not to be helped
				wrong += p.unreadable(to)
			}
			all = append(all, explore.Move[town]{Name: what, To: to, Wrong: wrong})
		}
	}
	to, wrong, many := p.think(w, 9)
	add("the controller thinks", to, wrong)
	if many {
		to, wrong, _ = p.think(w, 1)
		add("the controller thinks, and crashes half way", to, wrong)
	}
	if p.crashes {
		add("the controller crashes", p.crash(w), "")
	}
	add("a minute goes by", p.tick(w), "")
	p.people(w, add)
	if w.haunted {
		to := w
		to.object, to.ghost, to.haunted, to.ghostAge = w.ghost, form{}, false, 0
		add("a write ends of one that is gone", to, "")
	}
	for i := range w.servers {
		p.house(w, i, add)
	}
	return all
}

// people are what they do.
func (p *player) people(w town, add func(string, town, string)) {
	for i := range p.wishes {
		if int8(i) != w.wish && w.minds > 0 {
			to := w
			to.wish, to.minds = int8(i), w.minds-1
			add(fmt.Sprint("somebody wants ", p.wishes[i].Mode, " ", i), to, "")
		}
	}
	if w.turns > 0 {
		to := w
		to.turns, to.version = w.turns-1, w.version+1
		add("the KEK is rotated", to, "")
	}
	if n := len(p.records[w.records]); p.loses > 0 && w.loses > 0 && n > 0 && !w.lost {
		to := w
		to.loses, to.lost = w.loses-1, true
		add("the newest record is lost", to, "")
	}
	if w.lost {
		to := w
		to.lost = false
		add("the newest record is there again", to, "")
	}
}

// house is what can happen to an apiserver.
func (p *player) house(w town, i int, add func(string, town, string)) {
	h, who := w.servers[i], []string{"the first ", "the second "}[i]
	if h.gone {
		return
	}
	with := func(what string, happen func(*house, *town)) {
		to := w
		happen(&to.servers[i], &to)
		add(who+what, to, "")
	}
	if w.asked[i] != 0 {
		with("is given its file", func(h *house, w *town) { h.file, w.asked[i] = w.asked[i], 0 })
	}
	if w.wanted > 0 && w.tried[i] != w.wanted {
		with("tries a plugin", func(_ *house, w *town) { w.tried[i] = w.wanted })
	}
	if w.leaves > 0 && !w.servers[1-i].gone {
		with("is replaced", func(h *house, w *town) {
			w.leaves--
			if h.busy {
				w.ghost, w.haunted, w.ghostAge = h.late, true, h.lateAge
			}
			*h = house{told: w.version}
			h.gone = p.departs
		})
	}
	if w.loses > 0 && !p.refused && p.loses > 0 && h.file > 0 {
		with("loses its file", func(h *house, w *town) { h.file, w.loses = 0, w.loses-1 })
	}
	if w.mayMeddle > 0 {
		for other := range p.configs {
			if other > 0 && int16(other) < h.file {
				with(fmt.Sprint("is given another file by somebody, ", other), func(h *house, w *town) { h.file, w.mayMeddle = int16(other), w.mayMeddle-1 })
			}
		}
	}
	if !h.up {
		if h.file != 0 {
			with("starts", func(h *house, w *town) { *h = house{up: true, file: h.file, effect: h.file, told: w.version} })
		}
		return
	}
	p.alive(w, i, with)
}

// alive is what an apiserver does that runs.
func (p *player) alive(w town, i int, with func(string, func(*house, *town))) {
	h := w.servers[i]
	if h.file != 0 {
		with("reloads", func(h *house, _ *town) { h.effect = h.file })
	}
	with("writes", func(h *house, w *town) { w.object = p.writes(*h) })
	with("learns of its KEK", func(h *house, w *town) { h.told = w.version })
	if !p.calm {
		with("dies", func(h *house, _ *town) { h.up, h.busy, h.late, h.lateAge = false, false, form{}, 0 })
	}
	if p.lates && !h.busy && !w.haunted && !w.servers[1-i].busy {
		with("begins a write", func(h *house, _ *town) { h.busy, h.late = true, p.writes(*h) })
	}
	if h.busy {
		with("ends a write", func(h *house, w *town) { w.object, h.busy, h.late, h.lateAge = h.late, false, form{}, 0 })
	}
	if w.migrating == rotation.Running {
		if p.reads(h, w.object) {
			with("migrates", func(h *house, w *town) { w.object, w.migrating = p.writes(*h), rotation.Succeeded })
		}
		with("migrates and misses it", func(_ *house, w *town) { w.migrating = rotation.Succeeded })
	}
}

func (p *player) tick(w town) town {
	to := w
	for i := range to.servers {
		h := &to.servers[i]
		if h.busy {
			if h.lateAge++; h.lateAge == modelHold {
				return w
			}
		}
		if !h.up {
			h.reportAge = min(h.reportAge+1, modelMaxAge+1)
		}
	}
	if to.haunted {
		if to.ghostAge++; to.ghostAge == modelHold {
			return w
		}
	}
	if to.audited {
		to.auditAge = min(to.auditAge+1, modelOldest)
	}
	to.looked = min(to.looked+1, modelMaxAge+1)
	to.records = p.keep(p.records[w.records], 1)
	return to
}

// rests reports whether everything is as it is wanted.
func (p *player) rests(w town) bool {
	wanted, writer := p.wishes[w.wish], p.writer(w)
	r := p.record(w, writer)
	for _, other := range p.records[w.records] {
		if other.SettledAt.IsZero() && other.AbandonedAt.IsZero() || other.Change != nil {
			return false
		}
	}
	if w.lost {
		return false
	}
	for _, h := range w.servers {
		if !h.gone && (!h.up || h.file != h.effect) {
			return false
		}
	}
	if r == nil || r.Mode == keys.Identity {
		return wanted.Mode == keys.Identity && w.object.key == 0
	}
	if wanted.refused { // what is in use stays
		return w.object.key == int8(writer)
	}
	f := form{int8(writer), 0}
	if r.Strict != wanted.Strict || !slices.Equal(r.Resources, wanted.Resources) {
		return false
	}
	if !slices.Contains(r.Resources, "secrets") {
		return w.object.key == 0
	}
	if r.Mode == keys.KMS {
		f.version = w.version
	}
	if r.Mode != wanted.Mode || r.Plugin != nil && string(r.Plugin.Settings) != string(wanted.Plugin.Settings) {
		return false
	}
	return w.object == f && (r.Mode != keys.KMS || r.Migrated == p.keyIDOf(p.settingsOf(w, writer), w.version))
}
