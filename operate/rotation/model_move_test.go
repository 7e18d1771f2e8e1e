package rotation_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/explore"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// two is all of a world with two apiservers that go from the plugin old to the
// plugin new.
type two struct {
	servers [2]twoServer
	// object tells that the object is under new.
	object bool
	// asked are the stages, from 1, whose files the driver has been told to write.
	asked [2]int8
	// meddled is that somebody put a file back, as nobody does where it is calm.
	meddled, calm bool
	// mayAbort is that somebody may have it go back.
	mayAbort  bool
	migrating rotation.Phase
	audited   bool
	auditSaw  bool
	rotation  twoState
}

// twoServer is an apiserver: the stage of its file, and the one in effect. A
// late write was encrypted and is not in etcd yet.
type twoServer struct {
	up                 bool
	wrote              bool // with what the rotation goes to
	disk, effect       int8
	late, lateNew      bool
	lateAge, reportAge int8
}

// twoState is the State of the rotation, times as ages.
type twoState struct {
	step                           int8
	agreed, ended, failed          bool
	finished, asked, removing      bool
	back                           bool
	agreedAge, auditAge, failedAge int8
}

var twoSteps = []rotation.Step{"add", "swap", "migrate", "prove", "remove", "confirm", "done"}

func (r twoState) state() rotation.State {
	plan := oneState{}.state().Plan
	plan.Configs = map[string][]string{"0": hashOf("0"), "1": hashOf("1")}
	t := &rotation.Move{Old: []string{"old"}, New: []string{"new"}, Step: twoSteps[r.step], Since: ago(9), Finished: r.finished, Asked: r.asked, Removing: r.removing}
	s := rotation.State{Version: 1, Plan: plan, Move: t, Round: 1, AuditAfter: ago(r.auditAge).Add(-2)}
	keyID := keyB
	if r.back {
		t.Back, keyID = &rotation.Back{With: []string{"old"}}, keyA
	}
	if r.agreed {
		t.KeyID, t.AgreedAt = keyID, ago(r.agreedAge)
	}
	if t.Step == "migrate" {
		s.Migration = modelMigration(keyID, r.ended, r.failed, r.failedAge)
	}
	return s
}

func twoStateOf(s rotation.State) twoState {
	t := s.Move
	r := twoState{step: int8(slices.Index(twoSteps, t.Step)), agreed: t.KeyID != "", finished: t.Finished, asked: t.Asked, removing: t.Removing, back: t.Back != nil}
	if r.step >= 2 {
		r.auditAge = auditAge(s)
	}
	switch {
	case t.Step == "swap" && r.agreed:
		r.agreedAge = age(t.AgreedAt, modelHold)
	case t.Step == "migrate":
		r.ended = len(s.Migration.Ended) > 0
		if f, failed := s.Migration.Failures["secrets"]; failed {
			r.failed, r.failedAge = true, age(f.At, modelRetry)
		}
	}
	return r
}

func (w two) observation() rotation.Observation {
	o := rotation.Observation{Instances: map[string]rotation.Instance{}, Shown: map[string]rotation.Shown{}}
	for i, s := range w.servers {
		name := string(rune('0' + i))
		providers := map[string]rotation.Provider{}
		if s.effect < 3 {
			providers["old"] = modelProvider(keyA, w.rotation.back && s.wrote)
		}
		if s.effect > 0 {
			providers["new"] = modelProvider(keyB, !w.rotation.back && s.wrote)
		}
		o.Instances[name] = rotation.Instance{CheckedAt: ago(s.reportAge), ConfigHash: hashOf(name)[s.effect], FileHash: hashOf(name)[s.disk], Providers: providers}
	}
	for i, s := range w.servers {
		switch name := string(rune('0' + i)); {
		case w.blind():
		case s.effect < 2 && (!w.rotation.back || s.wrote):
			o.Shown[name] = shownToBe(o.Instances, "old", keyA)
		case s.effect > 1 && (w.rotation.back || s.wrote):
			o.Shown[name] = shownToBe(o.Instances, "new", keyB)
		}
	}
	saw := rotation.Count{Resource: "secrets", Provider: "old", KeyID: keyA, Objects: 1}
	if w.auditSaw {
		saw.Provider, saw.KeyID = "new", keyB
	}
	o.Migrations, o.Audit = driverKnows(w.migrating, w.audited, w.rotation.state(), saw)
	return o
}

func modelProvider(keyID string, wrote bool) rotation.Provider {
	p := rotation.Provider{Healthy: true, KeyID: keyID}
	if wrote {
		p.WroteKeyID, p.WroteAt = keyID, modelNow
	}
	return p
}

// goesTo reports whether an apiserver with a stage in effect writes with what the
// rotation goes to.
func (w two) goesTo(stage int8) bool { return w.rotation.back != (stage > 1) }

// blind reports whether an apiserver cannot read the object: what it lists is not known
// then, and a canary that was stored alike it cannot write again.
func (w two) blind() bool {
	for _, s := range w.servers {
		if s.up && (w.object && s.effect == 0 || !w.object && s.effect == 3) {
			return true
		}
	}
	return false
}

func (w two) think(m machine) (to two, wrong string) {
	before := w.rotation.state()
	s, d := m(before, w.observation(), modelNow)
	to = w
	to.rotation, to.asked = twoStateOf(s), [2]int8{}
	if s.Migration == nil || before.Migration == nil || s.Round != before.Round {
		to.migrating = ""
	}
	if to.rotation.step < 3 || !s.AuditAfter.Equal(before.AuditAfter) {
		to.audited, to.auditSaw = false, false
	}
	for _, a := range d.Actions {
		switch a := a.(type) {
		case rotation.Migrate:
			to.migrating = rotation.Running
		case rotation.WriteConfig:
			for i := range to.asked {
				if _, ok := a.Hashes[string(rune('0'+i))]; ok {
					to.asked[i] = 1 + int8(slices.Index(rotation.Stages[:], a.Stage))
				}
			}
		case rotation.Done:
			wrong = w.needs()
		}
	}
	return to, wrong
}

// needs says who still needs the plugin that may be stopped.
func (w two) needs() string {
	if w.object == w.rotation.back {
		return "I3: the object needs the plugin that may be stopped"
	}
	for _, s := range w.servers {
		if !w.rotation.back && s.disk < 3 || w.rotation.back && s.disk > 0 || s.late && s.lateNew == w.rotation.back {
			return "I3: an apiserver needs the plugin that may be stopped"
		}
	}
	return ""
}

// unreadable says that an apiserver cannot read the object, and nobody is to blame but
// the driver.
func (w two) unreadable() string {
	if !w.meddled && w.blind() {
		return "I1, I3: the object cannot be read"
	}
	return ""
}

// unkept says what would be so once an apiserver is started anew, which is not so
// now: it is looked for while the driver is at rest, and the files are its own. What was
// written with what is left while nobody looked a count finds.
func (w two) unkept() string {
	reads := func(stage int8, isNew bool) bool { return isNew && stage > 0 || !isNew && stage < 3 }
	for i, s := range w.servers {
		other := w.servers[1-i]
		switch {
		case w.rotation.finished || w.asked != [2]int8{} || !s.up || !other.up || s.reportAge > 0 || other.reportAge > 0:
			return ""
		case !w.rotation.back && w.object && s.disk == 0, w.rotation.back && !w.object && s.disk == 3, !reads(s.disk, other.disk > 1), !reads(s.disk, other.effect > 1):
			return "I1, I3: it could not read what there is after its next start"
		case twoSteps[w.rotation.step] == "migrate" && !reads(s.disk, w.object):
			return "I1, I3: it does not read what is rewritten yet, and is not given what it needs"
		case !reads(s.effect, other.disk > 1) && reads(s.effect, other.effect > 1):
			return "I1: it could not read what the other writes after its next start"
		}
	}
	return ""
}

// moves is everything that can happen.
func (w two) moves(m machine) []explore.Move[two] {
	var all []explore.Move[two]
	add := func(name string, to two, wrong string) {
		if to != w || wrong != "" {
			all = append(all, explore.Move[two]{Name: name, To: to, Wrong: wrong + to.unreadable()})
		}
	}
	to, wrong := w.think(m)
	if to == w {
		wrong += w.unkept()
	}
	add("the driver thinks", to, wrong)
	add("the migration fails", w.fail(), "")
	add("the driver audits", w.audit(), "")
	add("the driver crashes", w.crash(), "")
	if w.mayAbort {
		add("somebody has it go back", w.abort(), "")
	}
	add("a minute goes by", w.tick(), "")
	for i, name := range []string{"the first ", "the second "} {
		for _, h := range twoHappenings {
			to := w
			if to.servers[i].up != h.isDown {
				h.happen(&to.servers[i], &to, i)
				add(name+h.name, to, "")
			}
		}
		to := w
		if w.asked[i] > 0 {
			to.servers[i].disk, to.asked[i] = w.asked[i]-1, 0
			add("the driver writes the file of "+name, to, "")
		}
		for stage := range w.servers[i].disk {
			if to := w; !w.meddled && !w.calm {
				to.servers[i].disk, to.meddled = stage, true
				add("somebody puts back an earlier file of "+name, to, "")
			}
		}
	}
	return all
}

var twoHappenings = []struct {
	name   string
	isDown bool
	happen func(*twoServer, *two, int)
}{
	{"reloads", false, func(s *twoServer, _ *two, _ int) { s.effect = s.disk }},
	{"writes", false, func(s *twoServer, w *two, _ int) { w.object, s.wrote = s.effect > 1, w.goesTo(s.effect) }},
	{"begins a write", false, func(s *twoServer, w *two, _ int) {
		if !w.servers[0].late && !w.servers[1].late {
			s.late, s.lateNew = true, s.effect > 1
		}
	}},
	{"ends a write", false, func(s *twoServer, w *two, _ int) {
		if s.late {
			w.object, s.late, s.lateNew, s.lateAge = s.lateNew, false, false, 0
		}
	}},
	{"migrates", false, func(s *twoServer, w *two, _ int) {
		if w.migrating == rotation.Running {
			w.object, s.wrote, w.migrating = s.effect > 1, w.goesTo(s.effect), rotation.Succeeded
		}
	}},
	{"migrates and misses it", false, func(_ *twoServer, w *two, _ int) {
		if w.migrating == rotation.Running {
			w.migrating = rotation.Succeeded
		}
	}},
	{"dies", false, func(s *twoServer, _ *two, _ int) { s.up, s.late, s.lateNew, s.lateAge = false, false, false, 0 }},
	{"starts", true, func(s *twoServer, _ *two, _ int) { *s = twoServer{up: true, disk: s.disk, effect: s.disk} }},
}

func (w two) fail() two {
	if w.migrating == rotation.Running {
		w.migrating = rotation.Failed
	}
	return w
}

func (w two) audit() two {
	if w.rotation.step >= 3 && w.rotation.auditAge >= 0 {
		w.audited, w.auditSaw = true, w.object
	}
	return w
}

// crash leaves the driver with what is in its file: some files were written,
// others were not.
func (w two) crash() two {
	w.migrating, w.audited, w.auditSaw, w.asked = "", false, false, [2]int8{}
	w.rotation = twoStateOf(rotation.Resume(w.rotation.state(), modelNow))
	return w
}

// abort is a crash, and a driver that goes back, if it may.
func (w two) abort() two {
	s, err := w.rotation.state().Abort([]string{"old"}, false)
	if err != nil || w.rotation.back {
		return w
	}
	w = w.crash()
	w.rotation, w.mayAbort = twoStateOf(rotation.Resume(s, modelNow)), false
	for i := range w.servers {
		w.servers[i].wrote = false // with what it goes to now, as far as is known
	}
	return w
}

func (w two) tick() two {
	to := w
	for i := range to.servers {
		s := &to.servers[i]
		if s.late {
			if s.lateAge++; s.lateAge == modelHold {
				return w
			}
		}
		if !s.up {
			s.reportAge = min(s.reportAge+1, modelMaxAge+1)
		}
	}
	r := &to.rotation
	if r.step == 1 && r.agreed {
		r.agreedAge = min(r.agreedAge+1, modelHold)
	}
	if r.failed {
		r.failedAge = min(r.failedAge+1, modelRetry)
	}
	if r.step >= 2 {
		r.auditAge = min(r.auditAge+1, modelRetry)
	}
	return to
}

func twoStart() two { return two{servers: [2]twoServer{{up: true}, {up: true}}} }

func TestTwoApiserversAndTwoPluginsAreSearchedCompletely(t *testing.T) {
	explore.Long(t)
	found := explore.All(twoStart(), func(w two) []explore.Move[two] { return w.moves(rotation.Next) })
	found.RequireSound(t, func(w two) bool {
		return twoSteps[w.rotation.step] == "done" || w.rotation.finished && w.meddled // who did that has to undo it
	})
}

// An abort at any point leads back, or is refused. That somebody puts files back besides is
// for the long search.
func TestGoingBackFromAnyPointIsSearchedCompletely(t *testing.T) {
	explore.Long(t)
	began := twoStart()
	began.mayAbort, began.calm = true, !*long
	found := explore.All(began, func(w two) []explore.Move[two] { return w.moves(rotation.Next) })
	found.RequireSound(t, func(w two) bool {
		return twoSteps[w.rotation.step] == "done" && w.rotation.back || w.rotation.finished || w.rotation.removing
	})
}

// While everything is rewritten on the way back somebody may put back a file as it was.
func TestAFilePutBackOnTheWayBackIsSearchedCompletely(t *testing.T) {
	explore.Long(t)
	server := twoServer{up: true, wrote: true, disk: 1, effect: 1}
	began := two{servers: [2]twoServer{server, server}, object: true, rotation: twoState{step: 2, agreed: true, asked: true, back: true}}
	found := explore.All(began, func(w two) []explore.Move[two] { return w.moves(rotation.Next) })
	found.RequireSound(t, func(w two) bool { return twoSteps[w.rotation.step] == "done" || w.rotation.finished })
}

// Somebody has brought the file of the end to one of them before its time, which removes
// nothing yet: an abort at any point leads back all the same, or is refused.
func TestGoingBackAfterTheEndOfAnotherIsSearchedCompletely(t *testing.T) {
	explore.Long(t)
	began := two{servers: [2]twoServer{{up: true, disk: 2, effect: 2}, {up: true, disk: 3, effect: 3}}, mayAbort: true, meddled: true, rotation: twoState{step: 1, asked: true}}
	next, _ := began.think(rotation.Next)
	require.True(t, next.abort().rotation.back, "there is a way back")
	found := explore.All(began, func(w two) []explore.Move[two] { return w.moves(rotation.Next) })
	found.RequireSound(t, func(w two) bool {
		return twoSteps[w.rotation.step] == "done" && w.rotation.back || w.rotation.finished || w.rotation.removing
	})
}

func TestTheModelOfTwoPluginsCatchesABrokenMachine(t *testing.T) {
	for name, tc := range map[string]struct {
		machine machine
		want    string
	}{
		"that takes a file for what is in effect": {believing(func(s *rotation.State, o *rotation.Observation) {
			for name, i := range o.Instances {
				if i.ConfigHash == hashOf(name)[0] {
					i.ConfigHash = hashOf(name)[1]
					for _, shown := range o.Shown {
						shown.Identities[name] = " " + i.ConfigHash
					}
					i.Providers["new"] = rotation.Provider{Healthy: true, KeyID: keyB}
					o.Instances[name] = i
				}
			}
		}), "I1"},
		"that takes what is in effect for a file": {believing(func(_ *rotation.State, o *rotation.Observation) {
			for name, i := range o.Instances {
				i.FileHash = i.ConfigHash
				o.Instances[name] = i
			}
		}), "after its next start"},
		"that goes by those that answer":     {noMissing, "I1"},
		"that does not wait":                 {noHold, "I3"},
		"that does not look at what is left": {noAudit, "I3"},
	} {
		t.Run(name, func(t *testing.T) {
			found := explore.All(twoStart(), func(w two) []explore.Move[two] { return w.moves(tc.machine) })
			require.Contains(t, found.Wrong, tc.want)
		})
	}
}
