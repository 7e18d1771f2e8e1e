package rotation_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/explore"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// key is a key_id of the model: none, A or the newer B.
type key int8

func (k key) hash() string { return [...]string{"", keyA, keyB}[k] }

func keyNamed(hash string) key { return key(slices.Index([]string{"", keyA, keyB}, hash)) }

// one is all of a world with two apiservers whose plugin goes from A to B.
type one struct {
	servers [2]oneServer
	object  key
	// What the driver knows: of the migration, and whether the audit counts.
	migrating rotation.Phase
	audited   bool
	auditSaw  key
	rotation  oneState
}

// oneServer is an apiserver. Its plugin may be behind, what it knows of the
// plugin may be behind that, and what it writes with behind that again. A late
// write was encrypted and is not in etcd yet; no request lasts for as long as
// the hold.
type oneServer struct {
	up, late                 bool
	plugin, told, dek, wrote key
	lateKey                  key
	lateAge, reportAge       int8
}

// oneState is the State of the rotation, times as ages.
type oneState struct {
	target, migrated, candidate           key
	candidateAge, auditAge, failedAge     int8
	migrating, ended, failed              bool
	seenA, seenB, formerA, formerB, atEnd bool
}

func (r oneState) state() rotation.State {
	plan := rotation.Plan{Configs: map[string][]string{"0": {"h"}, "1": {"h"}}, Resources: []string{"secrets"},
		Hold: rotation.Duration(modelHold * time.Minute), MaxAge: rotation.Duration(modelMaxAge * time.Minute), RetryAfter: rotation.Duration(modelRetry * time.Minute)}
	p := &rotation.OnePlugin{Providers: []string{"kms"}, Target: r.target.hash(), Migrated: r.migrated.hash(),
		Seen: hashesOf(r.seenA, r.seenB), Former: hashesOf(r.formerA, r.formerB)}
	s := rotation.State{Version: 1, Plan: plan, OnePlugin: p, Round: 1, AuditAfter: ago(r.auditAge).Add(-2)}
	if r.candidate != 0 {
		p.Candidate = &rotation.Candidate{KeyID: r.candidate.hash(), Since: ago(r.candidateAge)}
	}
	if r.migrating {
		s.Migration = modelMigration(p.Target, r.ended, r.failed, r.failedAge)
	}
	return s
}

func modelMigration(keyID string, ended, failed bool, failedAge int8) *rotation.Migration {
	m := &rotation.Migration{Goal: rotation.Goal{KeyID: keyID, Round: 1}, Resources: []string{"secrets"}}
	if ended {
		m.Ended = map[string]time.Time{"secrets": modelNow}
	}
	if failed {
		m.Failures = map[string]rotation.Failure{"secrets": {At: ago(failedAge)}}
	}
	return m
}

func hashesOf(a, b bool) []string {
	var all []string
	if a {
		all = append(all, keyA)
	}
	if b {
		all = append(all, keyB)
	}
	return all
}

func oneStateOf(s rotation.State) oneState {
	p := s.OnePlugin
	r := oneState{target: keyNamed(p.Target), migrated: keyNamed(p.Migrated), auditAge: auditAge(s),
		seenA: slices.Contains(p.Seen, keyA), seenB: slices.Contains(p.Seen, keyB), formerA: slices.Contains(p.Former, keyA), formerB: slices.Contains(p.Former, keyB)}
	if p.Candidate != nil {
		r.candidate, r.candidateAge = keyNamed(p.Candidate.KeyID), age(p.Candidate.Since, modelHold)
	}
	if m := s.Migration; m != nil {
		r.migrating, r.ended = true, len(m.Ended) > 0
		if f, failed := m.Failures["secrets"]; failed {
			r.failed, r.failedAge = true, age(f.At, modelRetry)
		}
	}
	return r
}

func (w one) observation() rotation.Observation {
	o := rotation.Observation{Instances: map[string]rotation.Instance{}, Shown: map[string]rotation.Shown{}}
	for i, s := range w.servers {
		o.Instances[string(rune('0'+i))] = rotation.Instance{CheckedAt: ago(s.reportAge), ConfigHash: "h", Providers: map[string]rotation.Provider{
			"kms": {Healthy: true, KeyID: s.told.hash(), WroteKeyID: s.wrote.hash()}}}
	}
	for i, s := range w.servers {
		o.Shown[string(rune('0'+i))] = shownToBe(o.Instances, "kms", s.wrote.hash())
	}
	o.Migrations, o.Audit = driverKnows(w.migrating, w.audited, w.rotation.state(),
		rotation.Count{Resource: "secrets", Provider: "kms", KeyID: w.auditSaw.hash(), Objects: 1})
	return o
}

// driverKnows is what the driver tells of its work.
func driverKnows(phase rotation.Phase, audited bool, s rotation.State, saw rotation.Count) (all []rotation.Progress, a *rotation.Audit) {
	if phase != "" && s.Migration != nil {
		all = []rotation.Progress{{Goal: s.Migration.Goal, Resource: "secrets", Phase: phase}}
	}
	if audited {
		a = &rotation.Audit{StartedAt: s.AuditAfter.Add(1), Etcds: counted, Counts: []rotation.Count{saw}}
	}
	return all, a
}

// think is one call of the machine, with everything that is known.
func (w one) think(m machine) (to one, wrong string) {
	before := w.rotation.state()
	s, d := m(before, w.observation(), modelNow)
	to = w
	to.rotation = oneStateOf(s)
	if s.Migration == nil || before.Migration == nil || s.Round != before.Round {
		to.migrating = ""
	}
	if !s.AuditAfter.Equal(before.AuditAfter) || s.Migration != nil {
		to.audited, to.auditSaw = false, 0
	}
	for _, a := range d.Actions {
		if _, ok := a.(rotation.Migrate); ok {
			to.migrating = rotation.Running
			if w.servers[0].dek != w.servers[1].dek {
				wrong = "I10: a migration begins while the apiservers write under different keys"
			}
		}
	}
	if done, ok := d.Done(); ok {
		to.rotation.atEnd = done.KeyID == keyB
		wrong += w.needs(done)
	}
	return to, wrong
}

// needs says who still needs what may go.
func (w one) needs(done rotation.Done) string {
	for _, former := range done.KeyIDs {
		k := keyNamed(former)
		if w.object == k {
			return "I3: the object needs what may go"
		}
		for _, s := range w.servers {
			if s.plugin == k || s.up && s.dek == k || s.late && s.lateKey == k {
				return "I3: an apiserver needs what may go"
			}
		}
	}
	return ""
}

// moves is everything that can happen.
func (w one) moves(m machine) []explore.Move[one] {
	var all []explore.Move[one]
	add := func(name string, to one, wrong string) {
		if to.servers[1].before(to.servers[0]) { // the two are alike, so which is which does not matter
			to.servers[0], to.servers[1] = to.servers[1], to.servers[0]
		}
		if to != w || wrong != "" {
			all = append(all, explore.Move[one]{Name: name, To: to, Wrong: wrong})
		}
	}
	to, wrong := w.think(m)
	add("the driver thinks", to, wrong)
	add("the migration fails", w.fail(), "")
	add("the driver audits", w.audit(), "")
	add("the driver crashes", w.crash(), "")
	add("a minute goes by", w.tick(), "")
	for i, name := range []string{"the first ", "the second "} {
		for _, h := range happenings {
			to := w
			if to.servers[i].up != h.isDown {
				h.happen(&to.servers[i], &to)
				add(name+h.name, to, "")
			}
		}
	}
	return all
}

// before is some order.
func (s oneServer) before(o oneServer) bool {
	return slices.Compare(s.numbers(), o.numbers()) < 0
}

func (s oneServer) numbers() []int8 {
	n := []int8{int8(s.plugin), int8(s.told), int8(s.dek), int8(s.wrote), int8(s.lateKey), s.lateAge, s.reportAge, 0}
	if s.up {
		n[7] = 1
	}
	return n
}

var happenings = []struct {
	name   string
	isDown bool
	happen func(*oneServer, *one)
}{
	{"gets B from its plugin", false, func(s *oneServer, _ *one) { s.plugin = 2 }},
	{"polls", false, func(s *oneServer, _ *one) { s.told = s.plugin }},
	{"makes a DEK", false, func(s *oneServer, _ *one) { s.dek = s.told }},
	{"writes", false, func(s *oneServer, w *one) { w.object, s.wrote = s.dek, s.dek }},
	{"begins a write", false, func(s *oneServer, w *one) {
		if !w.servers[0].late && !w.servers[1].late { // one at a time is enough to do harm
			s.late, s.lateKey = true, s.dek
		}
	}},
	{"ends a write", false, func(s *oneServer, w *one) {
		if s.late {
			w.object, s.late, s.lateKey, s.lateAge = s.lateKey, false, 0, 0
		}
	}},
	{"migrates", false, func(s *oneServer, w *one) {
		if w.migrating == rotation.Running {
			w.object, s.wrote, w.migrating = s.dek, s.dek, rotation.Succeeded
		}
	}},
	{"migrates and misses it", false, func(_ *oneServer, w *one) { // as those do that take a conflict for an update
		if w.migrating == rotation.Running {
			w.migrating = rotation.Succeeded
		}
	}},
	{"dies", false, func(s *oneServer, _ *one) { s.up, s.late, s.lateKey, s.lateAge = false, false, 0, 0 }},
	{"starts", true, func(s *oneServer, _ *one) { *s = oneServer{up: true, plugin: s.plugin, told: s.plugin, dek: s.plugin} }},
}

func (w one) fail() one {
	if w.migrating == rotation.Running {
		w.migrating = rotation.Failed
	}
	return w
}

func (w one) audit() one {
	if w.rotation.target != 0 && !w.rotation.migrating && w.rotation.auditAge >= 0 {
		w.audited, w.auditSaw = true, w.object
	}
	return w
}

// crash leaves the driver with what is in its file.
func (w one) crash() one {
	w.migrating, w.audited, w.auditSaw = "", false, 0
	atEnd := w.rotation.atEnd
	w.rotation = oneStateOf(rotation.Resume(w.rotation.state(), modelNow))
	w.rotation.atEnd = atEnd
	return w
}

// tick is a minute, for which no write may wait that the hold has to outlast.
func (w one) tick() one {
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
	if r.candidate != 0 {
		r.candidateAge = min(r.candidateAge+1, modelHold)
	}
	if r.failed {
		r.failedAge = min(r.failedAge+1, modelRetry)
	}
	if r.target != 0 || r.auditAge < 0 {
		r.auditAge = min(r.auditAge+1, modelRetry)
	}
	return to
}

func oneStart(t *testing.T) one {
	s, err := rotation.NewOnePlugin(oneState{}.state().Plan, []string{"kms"}, "")
	require.NoError(t, err)
	server := oneServer{up: true, plugin: 1, told: 1, dek: 1, wrote: 1}
	return one{servers: [2]oneServer{server, server}, object: 1, rotation: oneStateOf(s)}
}

func TestTwoApiserversAndTwoKeysAreSearchedCompletely(t *testing.T) {
	explore.Long(t)
	t.Parallel()
	found := explore.All(oneStart(t), func(w one) []explore.Move[one] { return w.moves(rotation.Next) })
	found.RequireSound(t, func(w one) bool { return w.rotation.atEnd })
}

func TestTheModelCatchesABrokenMachine(t *testing.T) {
	explore.Long(t)
	t.Parallel()
	for name, tc := range map[string]struct {
		machine machine
		want    string
	}{
		"that goes by what apiservers are told": {believing(func(_ *rotation.State, o *rotation.Observation) {
			for name, i := range o.Instances {
				p := i.Providers["kms"]
				p.WroteKeyID = p.KeyID
				i.Providers["kms"] = p
				o.Shown[name].KeyIDs["kms"] = p.KeyID
			}
		}), "I10"},
		"that goes by those that answer":     {noMissing, "I10"},
		"that does not wait":                 {noHold, "I3"},
		"that does not look at what is left": {noAudit, "I3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := explore.All(oneStart(t), func(w one) []explore.Move[one] { return w.moves(tc.machine) })
			require.Contains(t, found.Wrong, tc.want)
		})
	}
}
