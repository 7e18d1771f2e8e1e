package keys_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/keys"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// The model is a small cluster that is searched completely: two apiservers, one object, a
// controller, and people. Time goes by in minutes.
const (
	modelHold   = 2
	modelMaxAge = 1
	modelOldest = 3
)

// modelNow is always now: what is in the past is so by its age.
var modelNow = start

func ago(minutes int8) time.Time { return modelNow.Add(-time.Duration(minutes) * time.Minute) }

// form is how an object is stored: keyID and version of its KEK; 0 is plain text.
type form struct{ key, version int8 }

// foreign is what nobody but somebody else's configuration reads.
var foreign = form{key: 99}

// town is all of the world.
type town struct {
	servers [2]house
	object  form
	// records is what is stored of them, lost that the newest was deleted or cannot be read.
	records int16
	lost    bool
	// wish is what is wanted, and minds how often it may yet change.
	wish, minds int8
	// asked are the files that the controller was told to write, from 1.
	asked [2]int16
	// tried are the preflights made on each, from 1; wanted is the one that is.
	tried  [2]int16
	wanted int16
	// version is that of the KEK at the KMS, and turns how often it may yet rotate.
	version, turns int8
	migrating      rotation.Phase
	audited        bool
	auditSaw       form
	auditAge       int8
	// ghost is a write of an apiserver that is gone, which is not in etcd yet.
	ghost     form
	haunted   bool
	ghostAge  int8
	leaves    int8 // how many may yet be replaced
	loses     int8 // how many files or records may yet be lost
	looked    int8 // minutes since the controller did
	mayMeddle int8
}

// house is an apiserver: its file, and the configuration in effect, from 1; 0 is none.
type house struct {
	up           bool
	file, effect int16
	told         int8 // the version of the KEK that it knows
	late         form
	busy         bool
	lateAge      int8
	reportAge    int8
	gone         bool
}

// scene is what can happen in a town, and how it begins.
type scene struct {
	wishes         []wish
	minds          int8
	turns          int8
	leaves         int8
	loses          int8
	kept           bool // a lost record can be put back
	unseen         bool // the keys of configurations are not told
	refused        bool // what is lost is there, and cannot be read
	foreign        bool
	crashes, lates bool
	meddles        int8
	calm           bool          // nobody dies
	departs        bool          // who leaves is not replaced
	from           rotation.Step // or settled
	crowded        bool          // it takes a minute or more
}

// settled is a world that begins with the first wish come true.
const settled rotation.Step = "settled"

// wish is what is wanted.
type wish struct {
	keys.Desired
	keyID   string
	refused bool
}

// player is a machine in a town. What is too large to compare is kept once.
type player struct {
	scene
	next    func(keys.Input, time.Time) keys.Output
	records [][]keys.Record
	ids     map[string]int16
	configs []keys.Config
	hashes  map[string]int16
	trials  []trial
	trialID map[string]int16
}

type trial struct {
	hash string
	wish int8
}

func newPlayer(s scene, guard string) *player {
	p := &player{scene: s, next: keys.Without(guard), ids: map[string]int16{}, hashes: map[string]int16{}, trialID: map[string]int16{}}
	p.configs, p.trials = make([]keys.Config, 1), make([]trial, 1)
	p.keep(nil, 0)
	return p
}

func (p *player) start() town {
	w := town{minds: p.minds, turns: p.turns, leaves: p.leaves, loses: p.loses, mayMeddle: p.meddles}
	for i := range w.servers {
		w.servers[i].up = true
		if p.foreign {
			w.servers[i].file, w.servers[i].effect, w.object = -1, -1, foreign
		}
	}
	if !p.foreign {
		plain := p.next(p.input(w), modelNow).Configs["0"]
		if plain.Hash == "" {
			in := p.input(w)
			in.Desired = wants(keys.Identity, nil)
			plain = p.next(in, modelNow).Configs["0"]
		}
		for i := range w.servers {
			w.servers[i].file = p.config(plain)
			w.servers[i].effect = w.servers[i].file
		}
	}
	return p.until(w)
}

// until is the world in which all went well up to a step.
func (p *player) until(w town) town {
	for n := 0; p.from != ""; n++ {
		if n > 1000 {
			panic("it does not come to its beginning")
		}
		s := p.state(w)
		if s != nil && s.Move != nil && s.Move.Step == p.from || p.from == settled && p.writer(w) > 0 && p.rests(w) {
			break
		}
		w, _, _ = p.think(w, 9)
		for i := range w.servers {
			if w.asked[i] != 0 {
				w.servers[i].file, w.asked[i] = w.asked[i], 0
			}
			w.servers[i].effect = w.servers[i].file
			w.tried[i] = w.wanted
		}
		if w.migrating == rotation.Running {
			w.object, w.migrating = p.writes(w.servers[0]), rotation.Succeeded
		}
		w = p.tick(w)
	}
	return w
}

func (p *player) config(c keys.Config) int16 {
	id, known := p.hashes[c.Hash]
	if !known {
		id = int16(len(p.configs))
		p.hashes[c.Hash], p.configs = id, append(p.configs, c)
	}
	return id
}

// keep is the number of records, all of whose times are some minutes earlier then.
func (p *player) keep(all []keys.Record, minutes int8) int16 {
	var b strings.Builder
	kept := make([]keys.Record, 0, len(all))
	for _, r := range all {
		r.CreatedAt, r.Left = ago(9), nil
		if !r.SettledAt.IsZero() {
			r.SettledAt = ago(9)
		}
		if !r.AbandonedAt.IsZero() {
			r.AbandonedAt = ago(9)
		}
		fmt.Fprint(&b, r.ID, r.Mode, r.SettledAt.IsZero(), r.AbandonedAt.IsZero(), r.Resources, r.Strict, r.Migrated, r.KeyIDHash, r.Reason == keys.PutBack, r.Change != nil, ";")
		if r.Plugin != nil {
			b.Write(r.Plugin.Settings)
		}
		if r.State != nil {
			s := older(*r.State, minutes)
			r.State = &s
			text, err := s.Encode()
			if err != nil {
				panic(err)
			}
			b.Write(text)
		}
		kept = append(kept, r)
	}
	id, known := p.ids[b.String()]
	if !known {
		id = int16(len(p.records))
		p.ids[b.String()], p.records = id, append(p.records, kept)
		if id < 0 {
			panic("too many records")
		}
	}
	return id
}

// older is a state some minutes later, whose rounds are all the first.
func older(s rotation.State, minutes int8) rotation.State {
	shift := func(at time.Time) time.Time {
		if at.IsZero() {
			return at
		}
		if at = at.Add(-time.Duration(minutes) * time.Minute); at.Before(ago(modelOldest)) {
			return ago(modelOldest)
		}
		return at.Truncate(time.Minute)
	}
	s.AuditAfter, s.Round = shift(s.AuditAfter), min(s.Round, 1)
	if s.Move != nil {
		t := *s.Move
		t.Since, t.AgreedAt = shift(t.Since), shift(t.AgreedAt)
		s.Move = &t
	}
	if s.OnePlugin != nil {
		o := *s.OnePlugin
		o.ProvenAt = shift(o.ProvenAt)
		if o.Candidate != nil {
			c := *o.Candidate
			c.Since = shift(c.Since)
			o.Candidate = &c
		}
		s.OnePlugin = &o
	}
	if s.Migration != nil {
		m := *s.Migration
		m.Goal.Round, m.Ended, m.Failures = s.Round, nil, nil
		s.Migration = &m
	}
	return s
}

// writes is what an apiserver writes the object as.
func (p *player) writes(h house) form {
	if h.effect < 0 {
		return foreign
	}
	for _, e := range p.configs[h.effect].Entries {
		if e.Resource == "secrets" {
			return formOf(e.Providers[0], h.told)
		}
	}
	return form{}
}

func formOf(of keys.Provider, version int8) form {
	if of.Mode != keys.KMS {
		version = 0
	}
	return form{int8(of.KeyID), version}
}

func (p *player) reads(h house, f form) bool {
	if h.effect < 0 || f == foreign {
		return h.effect < 0 && f == foreign
	}
	for _, e := range p.configs[h.effect].Entries {
		if e.Resource == "secrets" {
			return slices.ContainsFunc(e.Providers, func(of keys.Provider) bool { return int8(of.KeyID) == f.key })
		}
	}
	return f.key == 0
}

// keyIDOf is the hash of a key_id, by the wish that a key was made for and the version.
func (p *player) keyIDOf(settings string, version int8) string {
	for _, w := range p.wishes {
		if w.Plugin != nil && string(w.Plugin.Settings) == settings {
			return hashed.ID(fmt.Sprint(w.keyID, version))
		}
	}
	return hashed.ID("nobody")
}

func (p *player) record(w town, id bundle.KeyID) *keys.Record {
	for i := range p.records[w.records] {
		if r := &p.records[w.records][i]; r.ID == id {
			return r
		}
	}
	return nil
}

func (p *player) settingsOf(w town, id bundle.KeyID) string {
	if r := p.record(w, id); r != nil && r.Plugin != nil {
		return string(r.Plugin.Settings)
	}
	return ""
}

func name(i int) string { return string(rune('0' + i)) }

// input is all that the controller sees.
func (p *player) input(w town) keys.Input {
	in := keys.Input{Desired: p.wishes[w.wish].Desired, Records: p.records[w.records], Random: random, Secret: secret,
		Resumed: w.looked > modelMaxAge, Times: keys.Times{Hold: modelHold * time.Minute, MaxAge: modelMaxAge * time.Minute, RetryAfter: time.Minute},
		Verdicts: map[string]keys.Verdict{}}
	if w.lost {
		last := in.Records[len(in.Records)-1]
		in.Records = in.Records[:len(in.Records)-1]
		if p.kept {
			in.Kept = []keys.Record{{ID: last.ID, Mode: last.Mode, Key: last.Key, Plugin: last.Plugin, Resources: last.Resources, Strict: last.Strict}}
		}
		if p.scene.refused {
			in.Refused = []error{fmt.Errorf("key %s is no record", last.ID)}
		}
	}
	in.Observed = rotation.Observation{Instances: map[string]rotation.Instance{}, Shown: map[string]rotation.Shown{}}
	both := true
	for i, h := range w.servers {
		if h.gone {
			continue
		}
		in.Expected = append(in.Expected, name(i))
		both = both && h.up
		if h.effect == 0 {
			continue
		}
		in.Observed.Instances[name(i)] = p.instance(w, h)
		for _, at := range []int16{h.file, h.effect} {
			if at > 0 && !p.unseen {
				for _, e := range p.configs[at].Entries {
					for _, of := range e.Providers {
						if of.KeyID > 0 {
							in.Present = append(in.Present, of.KeyID)
						}
					}
				}
			}
		}
	}
	for i, h := range w.servers {
		if other := w.servers[1-i]; both && !h.gone && h.effect > 0 && (other.gone || p.reads(other, p.writes(h))) {
			in.Observed.Shown[name(i)] = p.shown(w, h, in.Observed.Instances)
		}
		if t := w.tried[i]; t > 0 {
			in.Verdicts[name(i)] = p.verdict(p.trials[t])
		}
	}
	p.work(w, &in.Observed)
	return in
}

func (p *player) verdict(t trial) keys.Verdict {
	of := p.wishes[t.wish]
	v := keys.Verdict{Hash: t.hash, Outcome: keys.Passed, KeyIDHash: hashed.ID(of.keyID + "0")}
	if of.refused {
		v.Outcome, v.Problem = keys.Refused, "permission denied"
	}
	return v
}

func (p *player) instance(w town, h house) rotation.Instance {
	i := rotation.Instance{CheckedAt: ago(h.reportAge), ConfigHash: "foreign", FileHash: "foreign", Complete: true, Providers: map[string]rotation.Provider{}}
	if !h.up {
		i.Problem = "connection refused"
	}
	if h.file >= 0 {
		i.FileHash = p.configs[h.file].Hash
	}
	if h.effect < 0 {
		return i
	}
	i.ConfigHash = p.configs[h.effect].Hash
	for _, e := range p.configs[h.effect].Entries {
		for n, of := range e.Providers {
			if of.Mode != keys.KMS {
				continue
			}
			told := rotation.Provider{Healthy: true, KeyID: p.keyIDOf(p.settingsOf(w, of.KeyID), h.told)}
			if n == 0 {
				told.WroteKeyID, told.WroteAt = told.KeyID, modelNow
			}
			i.Providers[of.Name] = told
		}
	}
	return i
}

func (p *player) shown(w town, h house, all map[string]rotation.Instance) rotation.Shown {
	s := rotation.Shown{At: modelNow, Identities: rotation.Identities(all), KeyIDs: map[string]string{}, Resources: []string{"secrets"}, Etcds: []uint64{1}}
	state := p.state(w)
	others := state != nil && slices.Contains(state.Plan.Resources, "configmaps")
	listed := slices.ContainsFunc(p.configs[h.effect].Entries, func(e keys.Entry) bool { return e.Resource == "configmaps" })
	if p.writes(h).key == 0 || others && !listed {
		s.KeyIDs[rotation.Plain] = ""
	}
	for _, e := range p.configs[h.effect].Entries {
		of := e.Providers[0]
		s.KeyIDs[of.Name] = ""
		if of.Mode == keys.KMS {
			s.KeyIDs[of.Name] = p.keyIDOf(p.settingsOf(w, of.KeyID), h.told)
		}
	}
	return s
}

// state is what is under way.
func (p *player) state(w town) *rotation.State {
	for _, r := range slices.Backward(p.records[w.records]) {
		if r.State != nil && r.AbandonedAt.IsZero() {
			return r.State
		}
	}
	return nil
}

// work is what is known of the migration, and of a count that began just now: the object
// and the canaries.
func (p *player) work(w town, o *rotation.Observation) {
	if s := p.state(w); s != nil && s.Migration != nil && w.migrating != "" {
		progress := rotation.Progress{Goal: s.Migration.Goal, Resource: s.Migration.Resources[0], Phase: w.migrating}
		if w.migrating != rotation.Running {
			progress.EndedAt = modelNow
		}
		o.Migrations = []rotation.Progress{progress}
	}
	if !w.audited {
		return
	}
	o.Audit = &rotation.Audit{StartedAt: ago(w.auditAge).Add(-time.Second), Etcds: []rotation.Etcd{{Cluster: 1}}, Counts: []rotation.Count{p.count(w, w.auditSaw)}}
	for _, shown := range o.Shown {
		for provider, keyID := range shown.KeyIDs {
			o.Audit.Counts = append(o.Audit.Counts, rotation.Count{Resource: "secrets", Provider: provider, KeyID: keyID, Objects: 1, Canaries: 1})
		}
	}
}

func (p *player) count(w town, f form) rotation.Count {
	c := rotation.Count{Resource: "secrets", Provider: rotation.Plain, Objects: 1}
	r := p.record(w, bundle.KeyID(f.key))
	switch {
	case f.key == 0 || r == nil || r.Mode == keys.Identity:
	case r.Mode == keys.KMS:
		c.Provider, c.KeyID = r.ID.String()+"_secrets", p.keyIDOf(p.settingsOf(w, r.ID), f.version)
	default:
		c.Provider = string(r.Mode) + ":" + r.ID.String() + "_secrets"
	}
	return c
}
