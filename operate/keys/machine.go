package keys

import (
	"slices"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// machine is one call of Next.
type machine struct {
	in    *Input
	now   time.Time
	lax   lax
	ring  ring
	out   Output
	found findings
}

// Next is what ought to be so, by what was seen at a moment. It changes nothing that it is
// given.
func Next(in Input, now time.Time) Output { return next(in, now, lax{}) }

func next(in Input, now time.Time, without lax) Output {
	m := &machine{in: &in, now: now, lax: without, out: Output{Configs: map[string]Config{}}}
	if m.sound() && m.backed() {
		m.decide()
	}
	m.out.Conditions = m.conditions()
	return m.out
}

// sound reports whether the records can be gone by, and there is somebody to ask.
func (m *machine) sound() bool {
	var err error
	m.ring, err = ringOf(m.in.Records)
	switch {
	case len(m.in.Refused) > 0 && !m.lax.refused:
		texts := make([]string, len(m.in.Refused))
		for i, refused := range m.in.Refused {
			texts[i] = refused.Error()
		}
		m.found.key(recordRefused, strings.Join(texts, "; ")+": nothing is changed until each is whole again, from a copy of etcd, or gone, if nothing was ever written with it")
	case err != nil:
		m.found.key(recordRefused, err.Error()+": nothing is changed until the records agree")
	case len(m.in.Expected) == 0 || slices.Contains(m.in.Expected, ""):
		m.found.state(nobodyExpected, "no apiserver is expected, so nothing can be said of all of them: see that the nodes and Leases of the control plane can be read")
	default:
		return true
	}
	return false
}

// backed puts back the records of keys that a configuration has, and reports whether all
// are there: without one it is not known what is written with.
func (m *machine) backed() bool {
	var lost []string
	present := slices.Compact(slices.Sorted(slices.Values(m.in.Present)))
	for i, id := range present {
		if m.ring.find(id) != nil || m.lax.backed {
			continue
		}
		lost = append(lost, id.String())
		newer := i+1 < len(present) || slices.ContainsFunc(m.ring, func(r *Record) bool { return r.ID > id })
		if r := m.restored(id, newer); r != nil {
			m.put(Create, r, PutBack, "it was gone, and a configuration has it")
			m.ring = append(m.ring, r)
		}
	}
	if len(lost) == 0 {
		return true
	}
	text := "the record of key " + strings.Join(lost, ", ") + " is gone, and a configuration has the key: nothing else is changed until it is back"
	if len(m.out.Records) < len(lost) {
		text += "; no configuration could be read that it could be put back from: restore its Secret"
	}
	m.found.key(recordMissing, text)
	return false
}

// restored is a record without what was known of its way; nil if there is nothing to make
// it from. The newest is on its way once more, and may have been written with: how far it
// is what is in effect tells. An older one was written with before.
func (m *machine) restored(id bundle.KeyID, newer bool) *Record {
	at := slices.IndexFunc(m.in.Kept, func(r Record) bool { return r.ID == id })
	if at < 0 {
		return nil
	}
	kept := m.in.Kept[at]
	r := &Record{As: "key", ID: id, Mode: kept.Mode, Key: kept.Key, Plugin: kept.Plugin, Reason: PutBack, CreatedAt: m.now, Resources: kept.Resources, Strict: kept.Strict}
	switch {
	case newer:
		r.SettledAt = m.now
	case m.ring.moving() != nil || m.begin(r) != nil:
		return nil
	default:
		r.State.Move.Asked = true
	}
	if r.whole() != nil {
		return nil
	}
	return r
}

// decide is what is wanted, then the next step of what is under way.
func (m *machine) decide() {
	if err := m.in.Desired.validate(); err != nil {
		m.found.key(desiredInvalid, err.Error()+": what is in use stays")
	} else if m.follow() {
		return // what it takes is done with the new records, when they are stored
	}
	m.advance()
	m.prune()
}

// put notes a change of a record.
func (m *machine) put(v Verb, r *Record, reason Reason, detail string) {
	m.out.Records = append(m.out.Records, RecordChange{v, *r, reason, detail})
}
