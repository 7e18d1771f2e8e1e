package keys

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// plan is that of a move or a rotation now.
func (m *machine) plan(hashes, resources []string) rotation.Plan {
	times := m.in.Times
	p := rotation.Plan{Configs: map[string][]string{}, Resources: resources, Hold: cmp.Or(rotation.Duration(times.Hold), rotation.DefaultHold),
		MaxAge: cmp.Or(rotation.Duration(times.MaxAge), rotation.DefaultMaxAge), RetryAfter: cmp.Or(rotation.Duration(times.RetryAfter), rotation.DefaultRetryAfter)}
	for _, name := range m.in.Expected {
		p.Configs[name] = hashes
	}
	return p
}

// round is that of the latest migration that is known of.
func (m *machine) round() (last int) {
	for _, r := range m.ring {
		if last = max(last, r.Round); r.State != nil {
			last = max(last, r.State.Round)
		}
	}
	for _, p := range m.in.Observed.Migrations {
		last = max(last, p.Goal.Round)
	}
	return last
}

// begin gives a record the move that it begins with.
func (m *machine) begin(r *Record) error {
	t := between(m.ring.writer(), r)
	s, err := rotation.NewMove(m.plan(t.hashes(), t.resources), t.old, t.new)
	if err != nil {
		return fmt.Errorf("key %s: %w", r.ID, err)
	}
	s.Round, r.State, r.From = m.round(), &s, m.ring.writer().id()
	return nil
}

// step has a rotation take its next step, for those that are expected now. Another set of
// them is a break: of one that is gone nobody knows what it still writes.
func (m *machine) step(s rotation.State, hashes []string) (rotation.State, rotation.Decision) {
	was := slices.Sorted(maps.Keys(s.Plan.Configs))
	s.Plan = m.plan(hashes, s.Plan.Resources)
	joined := !slices.Equal(was, slices.Sorted(maps.Keys(s.Plan.Configs))) && !m.lax.joined
	if joined || m.in.Resumed && !m.lax.resumed {
		s = rotation.Resume(s, m.now)
	}
	return rotation.Next(s, m.in.Observed, m.now)
}

// advance takes the next step of what is under way, and says what the apiservers are to have.
func (m *machine) advance() {
	if t := m.ring.task(); t != nil {
		m.move(t)
		return
	}
	w := m.ring.writer()
	rest := nothing()
	if w != nil {
		rest = w.atRest(w.Resources, w.Strict)
	}
	for _, name := range m.in.Expected {
		if m.ours(name, rest.Hash) {
			m.out.Configs[name] = rest
		}
	}
	switch {
	case w.encrypts() && w.Mode == KMS:
		m.rotate(w, rest.Hash)
	default:
		m.atRest(rest.Hash)
	}
	if w != nil && w.Left != nil {
		m.out.MayGo = append(m.out.MayGo, *w.Left)
	}
}

// ours reports whether an apiserver has nothing that is somebody else's, before the first
// key was ever in use: what is stored by that could not be read any more.
func (m *machine) ours(name string, hashes ...string) bool {
	if len(m.ring) > 1 || len(m.ring) == 1 && !m.ring[0].moving() || m.lax.foreign {
		return true
	}
	i := m.in.Observed.Instances[name]
	for _, has := range []string{i.ConfigHash, i.FileHash} {
		if has != "" && !slices.Contains(hashes, has) {
			m.found.state(foreignConfig, "apiserver "+name+" has a configuration that is not written by this controller, and keeps it: take it over by hand, or take it away if nothing is stored by it")
			return false
		}
	}
	return true
}

// move takes the next step of a move.
func (m *machine) move(t *task) {
	r, hashes := *t.of, t.hashes()
	s, d := m.step(*r.State, hashes)
	done, over := d.Done()
	asked := map[string]string{}
	for _, a := range d.Actions {
		if write, ok := a.(rotation.WriteConfig); ok {
			maps.Copy(asked, write.Hashes)
		} else if _, end := a.(rotation.Done); !end {
			m.out.Actions = append(m.out.Actions, a)
		}
	}
	for _, name := range m.in.Expected {
		at := slices.Index(hashes, cmp.Or(asked[name], m.in.Observed.Instances[name].FileHash))
		if at < 0 {
			at = slices.Index(rotation.Stages[:], s.Joining())
		}
		if m.ours(name, hashes...) {
			m.out.Configs[name] = t.stages[max(at, t.least)]
		}
	}
	m.out.Waiting = d.Waiting
	r.State = &s
	switch {
	case over && s.Move.Back != nil:
		r.State, r.Change, r.Round = nil, nil, s.Round
		if w := m.ring.writer(); !r.settled() {
			r.AbandonedAt = m.now
			if w != nil && w.State != nil { // nobody followed it meanwhile
				anew := *w
				anew.State, anew.Round = nil, w.State.Round
				m.put(Update, &anew, Moved, "its key_id is followed again")
			}
		}
		m.put(Update, &r, Abandoned, "it was taken back before anything was written with it")
	case over:
		m.settle(t, r, done)
	case !t.of.same(&r):
		m.put(Update, &r, Moved, "step "+string(s.Move.Step))
	}
}

// settle ends a move, by the count that has proved it.
func (m *machine) settle(t *task, r Record, done rotation.Done) {
	w := m.ring.writer()
	r.Round, r.State, r.Migrated = r.State.Round, nil, ""
	if done.Otherwise == 0 { // or else what is stored is looked at once more
		r.Migrated = done.KeyID
	}
	if r.settled() {
		r.Resources, r.Strict, r.Change = r.Change.Resources, r.Strict || r.Change.Tighten, nil
		m.put(Update, &r, Settled, done.String())
		return
	}
	r.SettledAt = m.now
	if w.encrypts() && len(done.Providers)+len(done.Keys) > 0 { // or else nobody knows what something needs
		r.Left = &Left{ID: w.ID, KEK: w.kek(), KeyIDs: done.KeyIDs, Etcds: done.Etcds}
		m.out.MayGo = append(m.out.MayGo, *r.Left)
	}
	m.put(Update, &r, Settled, done.String())
}

// kek tells people what a key is.
func (r *Record) kek() string {
	if r.Mode != KMS {
		return string(r.Mode) + " key " + r.ID.String()
	}
	settings, err := bundle.ParseSettings(r.Plugin.Settings)
	if err != nil {
		return "key " + r.ID.String()
	}
	return settings.KEK()
}

// rotate follows the key_id of the plugin in use.
func (m *machine) rotate(w *Record, hash string) {
	r := *w
	if r.State == nil {
		s, err := rotation.NewOnePlugin(m.plan([]string{hash}, r.Resources), names(w, r.Resources), r.Migrated)
		if err != nil {
			m.found.state(nobodyExpected, err.Error())
			return
		}
		s.Round, r.State = m.round(), &s
	}
	s, d := m.step(*r.State, []string{hash})
	m.out.Waiting = d.Waiting
	for _, a := range d.Actions {
		if done, end := a.(rotation.Done); !end {
			m.out.Actions = append(m.out.Actions, a)
		} else if len(done.KeyIDs) > 0 {
			m.out.MayGo = append(m.out.MayGo, Left{ID: r.ID, KEK: r.kek(), KeyIDs: done.KeyIDs, Etcds: done.Etcds})
		}
	}
	if s.OnePlugin.Migrated != "" {
		r.Migrated = s.OnePlugin.Migrated
	}
	r.State = &s
	if !w.same(&r) {
		m.put(Update, &r, Moved, "key_id "+r.Migrated)
	}
}

// same reports whether what is under way is as it was. From when on a count counts is of
// no use to a plugin whose key_id has not changed yet: to note it anew each time would be
// a write each time.
func (r *Record) same(q *Record) bool {
	if r.State == nil || q.State == nil {
		return r.State == q.State
	}
	s, t := *r.State, *q.State
	if idle(s) && idle(t) {
		s.AuditAfter = t.AuditAfter
	}
	a, errA := s.Encode()
	b, errB := t.Encode()
	return errA == nil && errB == nil && slices.Equal(a, b)
}

func idle(s rotation.State) bool {
	return s.OnePlugin != nil && s.OnePlugin.Target == "" && s.OnePlugin.Candidate == nil
}

// atRest tells who has not what is to be in effect.
func (m *machine) atRest(hash string) {
	maxAge := time.Duration(m.plan(nil, nil).MaxAge)
	for _, name := range slices.Sorted(slices.Values(m.in.Expected)) {
		switch i := m.in.Observed.Instances[name]; {
		case i.ConfigHash == "" || m.now.Sub(i.CheckedAt) > maxAge:
			m.found.state(notInEffect, strings.TrimSuffix("apiserver "+name+" did not tell lately which configuration it has: see that it runs, and was started with the file: "+i.Problem, ": "))
		case i.ConfigHash != hash:
			m.found.state(notInEffect, "apiserver "+name+" has not the configuration in effect that it is to have: see that it follows its file")
		}
	}
}

// keptUnused is how many keys are kept that no configuration has, for backups of etcd.
const keptUnused = 10

// prune takes away the oldest keys that nothing needs.
func (m *machine) prune() {
	unused := slices.DeleteFunc(m.ring.unused(), func(r *Record) bool { return slices.Contains(m.in.Present, r.ID) && !m.lax.present })
	for i, r := range unused {
		if i >= keptUnused {
			m.put(Delete, r, Pruned, fmt.Sprintf("nothing is stored with it, and %d newer ones are kept for backups", keptUnused))
		}
	}
}
