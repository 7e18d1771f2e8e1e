package rotation_test

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/explore"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// liar is a world with two apiservers that go from the plugin old to the plugin new,
// in which something is not as it is told. What the driver asks for is done at once.
type liar struct {
	servers [2]lyingServer
	// objects are what two objects are stored under. The first is counted.
	objects [2]form
	// counted is what the last count saw, and when it began; shown says when.
	counted    bool
	countAge   int8
	saw        [2]form
	migrating  bool
	migrated   bool
	looked     int8 // minutes since the driver did
	lies       int8 // how many may yet be told
	done       bool // it was said once
	state      int32
	brokenLate bool // a plugin broke after the count began
	back       bool // it goes back, and unused from what nothing was written with
	unused     bool
}

// lyingServer is an apiserver: the stage in effect there, and the one it told of
// when it was seen last.
type lyingServer struct {
	effect, told   int8
	unseen, wrote  bool
	reportAge      int8
	late           form
	lateAge        int8
	born, toldBorn int8
	// What was shown to run, of it and of the other.
	ran               [2]running
	shown, nothing    bool
	shownAs, shownAge int8
	broken            bool // its new plugin encrypts, and does not decrypt
}

type running struct{ told, born int8 }

// form is how an object is stored.
type form int8

const (
	absent form = iota
	underOld
	underNew
	underOther // with another provider, whose key is that of old
	underV1    // and with one that does not tell so
)

// lie is how a world is not as it is told.
type lie struct {
	// What is so from the beginning.
	wrongEtcd, brokenPlugin, otherCount, secondPrefix, nothingThere, nothingShown, lags, unnamed, sameKey bool
	second                                                                                                form
	// What may happen, at most once or as often as may be told.
	unseen, restart, breaks, restores, putBack, crash bool
	lies                                              int8
	// quiet is a world in which nobody writes but what is needed for the lie: it is
	// smaller by far.
	quiet bool
	// asleep has an apiserver be cut off only while the driver does not look.
	asleep bool
	// strict is a world in which nothing can go wrong between a count and the removal
	// of the old provider that cannot be seen; ends is one from which an end can be
	// reached whatever happened.
	strict, ends bool
	// abort is that somebody may have it go back.
	abort bool
}

// memory is of all states of rotations, which are too large to compare.
type memory struct {
	ids    map[string]int32
	states []rotation.State
}

const oldest = 5

// keep is the number of a state, all of whose times are some minutes earlier then.
func (m *memory) keep(s rotation.State, minutes int8) int32 {
	shift := func(at time.Time) time.Time {
		if at.IsZero() {
			return at
		}
		if at = at.Add(-time.Duration(minutes) * time.Minute); at.Before(ago(oldest)) {
			return ago(oldest)
		}
		return at
	}
	t := *s.Move
	t.Since, t.AgreedAt, s.AuditAfter, s.Round = shift(t.Since), shift(t.AgreedAt), shift(s.AuditAfter), 1
	s.Move = &t
	if s.Migration != nil {
		s.Migration = modelMigration(s.Migration.Goal.KeyID, false, false, 0)
	}
	data, err := s.Encode()
	if err != nil {
		panic(err)
	}
	id, known := m.ids[string(data)]
	if !known {
		id = int32(len(m.states))
		m.ids[string(data)], m.states = id, append(m.states, s)
	}
	return id
}

func (w liar) writes(i int) form {
	if w.servers[i].effect >= 2 {
		return underNew
	}
	return underOld
}

func (w liar) reads(i int, f form) bool {
	s := w.servers[i]
	return f == underOld && s.effect < 3 || f == underNew && s.effect > 0 && !s.broken
}

func countOf(resource string, f form) rotation.Count {
	c := rotation.Count{Resource: resource, Objects: 1}
	switch f {
	case underOld:
		c.Provider, c.KeyID = "old", keyA
	case underNew:
		c.Provider, c.KeyID = "new", keyB
	case underOther:
		c.Provider, c.KeyID = "other", keyA
	case underV1:
		c.Provider = "v1"
	}
	return c
}

func (w liar) observation(k lie, s rotation.State) rotation.Observation {
	o := rotation.Observation{Instances: map[string]rotation.Instance{}, Shown: map[string]rotation.Shown{}}
	for i, server := range w.servers {
		name := string(rune('0' + i))
		o.Instances[name] = server.instance(k, name, w.back)
		if server.shown {
			o.Shown[name] = server.showing(k)
		}
	}
	if k.unnamed {
		o.Instances["x"] = rotation.Instance{Problem: "has a Lease, and nobody named it"}
	}
	if s.Migration != nil && w.migrating {
		p := rotation.Progress{Goal: s.Migration.Goal, Resource: "secrets", Phase: rotation.Running}
		if w.migrated {
			p.Phase = rotation.Succeeded
		}
		o.Migrations = []rotation.Progress{p}
	}
	if w.counted {
		o.Audit = w.audit(k)
	}
	return o
}

func (s lyingServer) instance(k lie, name string, back bool) rotation.Instance {
	i := rotation.Instance{CheckedAt: ago(s.reportAge), Process: process(s.toldBorn), ConfigHash: hashOf(name)[s.told], FileHash: hashOf(name)[s.told], Providers: map[string]rotation.Provider{}}
	if s.unseen {
		i.Problem = "connection refused"
	}
	if s.told < 3 {
		i.Providers["old"] = modelProvider(keyA, back && s.wrote)
	}
	if s.told > 0 {
		i.Providers["new"] = modelProvider(k.newKey(), !back && s.wrote)
	}
	if k.second == underOther {
		i.Providers["other"] = rotation.Provider{Healthy: true, KeyID: keyA}
	}
	return i
}

func process(born int8) string { return string(rune('a' + born)) }

func (k lie) newKey() string {
	if k.sameKey {
		return keyA
	}
	return keyB
}

func (s lyingServer) showing(k lie) rotation.Shown {
	shown := rotation.Shown{At: ago(s.shownAge), Identities: map[string]string{}}
	for i, ran := range s.ran {
		name := string(rune('0' + i))
		shown.Identities[name] = process(ran.born) + " " + hashOf(name)[ran.told]
	}
	provider, keyID := "old", keyA
	if s.shownAs >= 2 {
		provider, keyID = "new", k.newKey()
	}
	if s.nothing {
		shown.Nothing = []string{"old", "new"}
		return shown
	}
	shown.KeyIDs, shown.Resources, shown.Etcds = map[string]string{provider: keyID}, []string{"secrets"}, []uint64{1}
	if k.secondPrefix {
		shown.Resources = append(shown.Resources, "configmaps")
	}
	return shown
}

// audit is what the last count found: the canaries at least.
func (w liar) audit(k lie) *rotation.Audit {
	a := &rotation.Audit{StartedAt: ago(w.countAge), Etcds: counted}
	switch {
	case k.nothingThere:
	case k.wrongEtcd, k.otherCount:
		a.Etcds, a.Counts = []rotation.Etcd{{Cluster: 2}}, []rotation.Count{countOf("secrets", underNew)}
	default:
		goesTo := underNew
		if w.back {
			goesTo = underOld
		}
		a.Counts = []rotation.Count{countOf("secrets", goesTo), countOf("secrets", w.saw[0])}
		if w.saw[1] != absent && !k.secondPrefix {
			a.Counts = append(a.Counts, countOf("configmaps", w.saw[1]))
		}
	}
	return a
}

// player is a machine in a world that lies.
type player struct {
	lie
	*memory
	next   machine
	resume func(rotation.State, time.Time) rotation.State
}

// think is a turn of the driver, which carries out at once what it decides.
func (p player) think(w liar) (to liar, wrong string) {
	before := p.states[w.state]
	if w.looked > modelMaxAge {
		before = p.resume(before, modelNow)
	}
	s, d := p.next(before, w.observation(p.lie, before), modelNow)
	to = w
	to.looked = 0
	if s.Migration == nil || before.Migration == nil || s.Round != before.Round {
		to.migrating, to.migrated = false, false
	}
	for _, a := range d.Actions {
		switch a := a.(type) {
		case rotation.WriteConfig:
			wrong += w.change(p.lie, a.Stage)
			for i := range to.servers {
				if server := &to.servers[i]; a.Hashes[string(rune('0'+i))] != "" && !server.unseen {
					server.told = int8(slices.Index(rotation.Stages[:], a.Stage))
					if server.effect = server.told; p.lags && i == 1 { // it tells of what it read, and has not taken it into use
						server.effect = min(server.told, 1)
					}
				}
			}
		case rotation.Canary:
			to.canary(p.lie, int(a.Instance[0]-'0'))
		case rotation.RunAudit:
			if ago(0).After(a.After) {
				to.counted, to.countAge, to.saw, to.brokenLate = true, 0, w.objects, false
			}
		case rotation.Migrate:
			if to.migrating = true; !w.back && (p.breaks && p.restart && (w.servers[0].broken || w.servers[1].broken) || p.brokenPlugin) {
				wrong += "objects are rewritten that another apiserver cannot read"
			}
		case rotation.Done:
			to.done = true
			wrong += w.needs(p.lie, a)
		}
	}
	to.state = p.keep(s, 0)
	return to, wrong
}

// change is what is wrong with a change of files.
func (w liar) change(k lie, to rotation.Stage) string {
	broken := w.servers[0].broken || w.servers[1].broken
	switch {
	case k.wrongEtcd:
		return "a file is changed, and nobody knows whose etcd it is"
	case k.sameKey && to == rotation.Swapped:
		return "nothing is rotated"
	case !w.back && to == rotation.Removed && k.strict && w.objects[0] == underOld, w.back && to == rotation.Before && k.strict && w.objects[0] == underNew:
		return "the object needs the provider that is removed"
	case !w.back && to == rotation.Removed && k.breaks && broken && !w.brokenLate:
		return "a provider is removed though one could not read before the count what the others write"
	}
	return ""
}

func (w *liar) canary(k lie, i int) {
	s, other := &w.servers[i], 1-i
	s.shown = false
	if s.unseen || k.wrongEtcd {
		return
	}
	s.wrote = s.wrote || w.goesTo(s.told)
	if s.nothing = k.nothingThere || k.nothingShown && i == 1; !s.nothing && (w.servers[other].unseen || !w.reads(other, w.writes(i))) {
		return
	}
	s.shown, s.shownAge, s.shownAs = true, 0, s.effect
	for i, server := range w.servers {
		s.ran[i] = running{server.told, server.toldBorn}
	}
}

// needs says who still needs what may go.
func (w liar) needs(k lie, done rotation.Done) string {
	if slices.Contains(done.KeyIDs, keyA) && w.objects[1] > underNew {
		return "an object of another provider needs the key that may go"
	}
	left, last := underOld, int8(3)
	if w.back {
		left, last = underNew, 0
	}
	if w.objects[0] == left || w.objects[1] == left {
		return "an object needs the plugin that may be stopped"
	}
	for _, s := range w.servers {
		if s.effect != last || s.late == left {
			return "an apiserver needs the plugin that may be stopped"
		}
	}
	if k.unnamed {
		return "an apiserver that nobody named needs the plugin that may be stopped"
	}
	return ""
}

// moves is everything that can happen.
func (p player) moves(w liar) []explore.Move[liar] {
	var all []explore.Move[liar]
	add := func(name string, to liar, wrong string) {
		if to != w || wrong != "" {
			all = append(all, explore.Move[liar]{Name: name, To: to, Wrong: wrong})
		}
	}
	if !p.asleep || !w.servers[0].unseen {
		to, wrong := p.think(w)
		add("the driver takes a turn", to, wrong)
	}
	add("a minute goes by", p.tick(w), "")
	for i, name := range []string{"the first ", "the second "} {
		for _, happens := range p.happenings(w, i) {
			to := w
			happens.do(&to, i)
			add(name+happens.name, to, "")
		}
	}
	if w.migrating && !w.migrated {
		to := w
		to.migrated = true
		add("the migration misses it", to, "")
	}
	if p.abort && !w.back {
		if s, err := p.states[w.state].Abort([]string{"old"}, false); err == nil {
			to := w.restarted(p, p.resume(s, modelNow))
			to.back, to.unused = true, !s.Move.Asked
			for i := range to.servers {
				to.servers[i].wrote = false
			}
			add("somebody has it go back", to, "")
		}
	}
	if p.unnamed {
		to := w
		to.objects[0] = underOld
		add("one that nobody named writes", to, "")
	}
	if p.restores && w.lies > 0 && slices.Contains([]rotation.Step{"prove", "remove"}, p.states[w.state].Move.Step) {
		to := w
		to.lies, to.objects[0] = w.lies-1, w.former()
		add("the object comes back as it was", to, "")
	}
	if p.crash {
		add("the driver crashes", w.restarted(p, p.resume(p.states[w.state], modelNow)), "")
	}
	if p.putBack {
		add("a finished state is put back", w.restarted(p, p.resume(finished(), modelNow)), "")
	}
	return all
}

// former is what an object was stored under before, and formerStage a file that was there.
func (w liar) former() form {
	if w.back && !w.unused {
		return underNew
	}
	return underOld
}

func (w liar) formerStage() int8 {
	if w.former() == underNew {
		return 2
	}
	return 0
}

// goesTo reports whether an apiserver of a stage writes with what the rotation goes to.
func (w liar) goesTo(stage int8) bool { return w.back != (stage >= 2) }

type happening struct {
	name string
	do   func(*liar, int)
}

// happenings are what can happen to an apiserver.
func (p player) happenings(w liar, i int) []happening {
	s := w.servers[i]
	var all []happening
	if !p.quiet || s.unseen {
		all = append(all, happening{"writes", func(w *liar, i int) {
			if w.objects[0] = w.writes(i); !w.servers[i].unseen {
				w.servers[i].wrote = w.goesTo(w.servers[i].told)
			}
		}})
	}
	if !s.unseen {
		all = append(all, happening{"migrates", func(w *liar, i int) {
			if w.migrating && !w.migrated {
				w.objects[0], w.servers[i].wrote, w.migrated = w.writes(i), w.goesTo(w.servers[i].effect), true
			}
		}})
	}
	if s.late != absent {
		all = append(all, happening{"ends a write", func(w *liar, i int) {
			w.objects[0], w.servers[i].late, w.servers[i].lateAge = w.servers[i].late, absent, 0
		}})
	}
	return append(all, p.told(w, i)...)
}

// told are the lies about an apiserver.
func (p player) told(w liar, i int) (all []happening) {
	s := w.servers[i]
	told := func(name string, do func(*liar, int)) {
		all = append(all, happening{name, func(w *liar, i int) {
			if w.lies > 0 {
				w.lies--
				do(w, i)
			}
		}})
	}
	switch {
	case p.unseen && !s.unseen && (i == 0 || !p.quiet) && (!p.asleep || w.looked > modelMaxAge):
		told("is cut off", func(w *liar, i int) { w.servers[i].unseen = true })
	case s.unseen:
		all = append(all, happening{"has its first file again", func(w *liar, i int) {
			w.servers[i].effect = w.formerStage()
			if !p.asleep {
				w.servers[i].born = 1
			}
		}},
			happening{"begins a write", func(w *liar, i int) { w.servers[i].late, w.servers[i].lateAge = w.writes(i), 0 }},
			happening{"has its file back, and is seen", func(w *liar, i int) {
				s := &w.servers[i]
				s.effect, s.wrote = s.told, s.wrote && s.born == s.toldBorn
				s.toldBorn, s.unseen, s.reportAge = s.born, false, 0
			}})
	}
	switch {
	case p.restart && p.breaks:
		told("starts anew with another plugin", func(w *liar, i int) {
			w.servers[i].born, w.servers[i].toldBorn, w.servers[i].wrote, w.servers[i].broken = 1, 1, false, true
		})
	case p.restart:
		told("starts anew, and writes as before on its way", func(w *liar, i int) {
			w.servers[i].born, w.servers[i].toldBorn, w.servers[i].wrote, w.objects[0] = 1, 1, false, w.former()
		})
	case p.breaks:
		told("has a plugin that decrypts no more", func(w *liar, i int) { w.servers[i].broken, w.brokenLate = true, w.counted })
	}
	return all
}

// restarted is the world with another driver, which has nothing but a state.
func (w liar) restarted(p player, s rotation.State) liar {
	w.counted, w.migrating, w.migrated, w.looked, w.brokenLate = false, false, false, 0, false
	w.countAge, w.saw = 0, [2]form{}
	for i := range w.servers {
		w.servers[i].shown, w.servers[i].nothing, w.servers[i].shownAge, w.servers[i].shownAs, w.servers[i].ran = false, false, 0, 0, [2]running{}
	}
	w.state = p.keep(s, 0)
	return w
}

func (p player) tick(w liar) liar {
	to := w
	for i := range to.servers {
		s := &to.servers[i]
		if s.late != absent {
			if s.lateAge++; s.lateAge == modelHold {
				return w
			}
		}
		if s.unseen {
			s.reportAge = min(s.reportAge+1, modelMaxAge+1)
		}
		if s.shown {
			s.shownAge = min(s.shownAge+1, oldest)
		}
	}
	if to.counted {
		to.countAge = min(to.countAge+1, oldest)
	}
	to.looked = min(to.looked+1, modelMaxAge+1)
	to.state = p.keep(p.states[w.state], 1)
	return to
}

func modelTwo() rotation.State { return twoState{}.state() }

func finished() rotation.State {
	s := modelTwo()
	s.AuditAfter = ago(oldest)
	s.Move.Step, s.Move.KeyID, s.Move.Former = "done", keyB, []string{keyA}
	return s
}

func (k lie) play(guard string) *explore.Search[liar] {
	next, resume := rotation.Without(guard)
	p := player{lie: k, memory: &memory{ids: map[string]int32{}}, next: next, resume: resume}
	w := liar{objects: [2]form{underOld, k.second}, lies: k.lies, state: p.keep(modelTwo(), 0)}
	w.servers[1].broken = k.brokenPlugin
	return explore.All(w, p.moves)
}

// lies are the ways in which the world is not as it is told.
var lies = map[string]lie{
	"none of them":                                    {crash: true, ends: true},
	"an etcd of another cluster":                      {wrongEtcd: true},
	"a count of another cluster":                      {otherCount: true},
	"a second prefix that is not counted":             {secondPrefix: true, second: underOld},
	"a plugin that encrypts and does not decrypt":     {brokenPlugin: true},
	"a plugin that decrypts no more":                  {breaks: true, lies: 1},
	"a plugin that decrypts no more after a start":    {breaks: true, restart: true, lies: 1},
	"an apiserver that lags, and tells otherwise":     {lags: true},
	"one through which nothing can be written, too":   {lags: true, nothingShown: true},
	"an etcd in which nothing is":                     {nothingThere: true},
	"an apiserver that nobody named":                  {unnamed: true},
	"an apiserver that is unseen and writes on":       {unseen: true, lies: 1, ends: true, quiet: true},
	"an apiserver that writes as before on its start": {restart: true, lies: 1, strict: true, ends: true},
	"an object that comes back":                       {restores: true, lies: 1, ends: true},
	"a finished state that is put back":               {putBack: true},
	"a break in which nobody looks":                   {unseen: true, lies: 1, quiet: true, asleep: true, ends: true},
	"another provider with the same key":              {second: underOther, ends: true},
	"a provider that does not tell its key":           {second: underV1, ends: true},
	"a new plugin with the key of the old one":        {sameKey: true},

	"none of them, and it goes back":                                {abort: true, crash: true, ends: true},
	"a plugin that encrypts and does not decrypt, and it goes back": {abort: true, brokenPlugin: true, ends: true},
	"a plugin that decrypts no more, and it goes back":              {abort: true, breaks: true, lies: 1},
	"an apiserver that lags, and it goes back":                      {abort: true, lags: true},
	"an etcd of another cluster, and it goes back":                  {abort: true, wrongEtcd: true},
	"an apiserver that nobody named, and it goes back":              {abort: true, unnamed: true},
	"an object that comes back, and it goes back":                   {abort: true, restores: true, lies: 1, ends: true},
	"another provider with the same key, and it goes back":          {abort: true, second: underOther, ends: true},
}

// worse are more of them at once, or in a world that does not keep quiet.
var worse = map[string]lie{
	"an apiserver that is unseen in a busy world":                 {unseen: true, lies: 1, ends: true},
	"a finished state that is put back, and unseen":               {putBack: true, lies: 1, unseen: true},
	"an apiserver that is unseen and writes on, and it goes back": {abort: true, unseen: true, lies: 1, ends: true, quiet: true},
	"a start on which it writes as before, and it goes back":      {abort: true, restart: true, lies: 1, strict: true, ends: true},
	"an object that comes back, twice, and a crash":               {restores: true, lies: 2, crash: true, ends: true},
}

var long = flag.Bool("long", false, "also search what takes minutes")

func TestNothingMayGoThatIsNeededWhateverTheLie(t *testing.T) {
	explore.Long(t)
	all := maps.Clone(lies)
	if *long {
		maps.Copy(all, worse)
	}
	for name, k := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := k.play("")
			require.Empty(t, found.Wrong)
			if k.ends {
				found.RequireSound(t, func(w liar) bool { return w.done })
			}
			t.Logf("%d states", found.States())
		})
	}
}

// without is a lie that each guard is needed for.
var without = map[string]string{
	"identity":  "an etcd of another cluster",
	"shown":     "a plugin that decrypts no more after a start",
	"bound":     "a plugin that decrypts no more after a start",
	"answered":  "an apiserver that is unseen and writes on",
	"since":     "a plugin that decrypts no more",
	"nothing":   "one through which nothing can be written, too",
	"unnamed":   "an apiserver that nobody named",
	"after":     "an object that comes back",
	"unseen":    "an apiserver that is unseen and writes on",
	"late":      "an apiserver that is unseen and writes on",
	"restarted": "an apiserver that writes as before on its start",
	"sound":     "an etcd in which nothing is",
	"etcds":     "a count of another cluster",
	"counted":   "a second prefix that is not counted",
	"confirm":   "a finished state that is put back",
	"resume":    "a break in which nobody looks",
	"elsewhere": "another provider with the same key",
	"untold":    "a provider that does not tell its key",
	"same":      "a new plugin with the key of the old one",
}

func TestSomethingGoesWrongWithoutAnyGuard(t *testing.T) {
	explore.Long(t)
	require.ElementsMatch(t, rotation.Guards(), slices.Collect(maps.Keys(without)))
	for guard, name := range without {
		t.Run(guard, func(t *testing.T) {
			t.Parallel()
			k, known := lies[name]
			require.True(t, known, name)
			require.NotEmpty(t, k.play(guard).Wrong, "nothing goes wrong without it in a world with %s", name)
		})
	}
}
