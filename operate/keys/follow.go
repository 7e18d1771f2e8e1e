package keys

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// follow has the records follow what is wanted, and reports whether it changed one: then
// nothing else is done before that is stored.
func (m *machine) follow() bool {
	d, head := &m.in.Desired, m.head()
	if head == nil {
		return d.Mode != Identity && m.mint(need{reason: FirstKey, why: "there is no key yet"})
	}
	n, err := d.of(head, m.evidence(head), m.now)
	if err != nil {
		m.found.key(desiredInvalid, err.Error()+": what is in use stays")
		return false
	}
	switch {
	case n.effect == bundle.InPlace:
		return m.inPlace(head, n)
	case n.effect == bundle.NoChange:
		return m.credentials(head) || m.resources(head)
	case n.effect == bundle.Undecided && (head.begun() || !head.moving()):
		keyID, passed := m.preflight(m.nextID(), head)
		if !passed {
			return false
		}
		if slices.Contains(m.keyIDs(head), keyID) && !m.lax.same {
			return m.inPlace(head, need{why: "it names the key_id of key " + head.ID.String()})
		}
	}
	switch {
	case head.moving() && !m.lax.overtake || head.Change != nil:
		return m.takeBack(head, n.why)
	case m.busy(head):
		m.found.queue(fmt.Sprintf("another key is wanted (%s), and waits until all is stored under the present key_id of key %s", n.why, head.ID))
		return false
	}
	return m.mint(n)
}

// head is the key that what is wanted is compared with: the newest that is used, or on its
// way into use.
func (m *machine) head() *Record {
	if n := m.ring.moving(); n != nil {
		return n
	}
	return m.ring.writer()
}

// evidence is what each node saw of what is wanted beside a key, which all of them have to
// have looked at.
func (m *machine) evidence(beside *Record) (seen []bundle.Evidence) {
	if m.in.Desired.Mode != KMS || beside.Mode != KMS {
		return nil
	}
	hash := m.in.Desired.hash(m.in.Secret, beside.ID)
	for _, name := range m.in.Expected {
		if v := m.in.Verdicts[name]; v.Hash == hash {
			seen = append(seen, v.Evidence)
		} else {
			seen = append(seen, bundle.Evidence{})
		}
	}
	return seen
}

// busy reports whether what is stored is being rewritten under another key_id.
func (m *machine) busy(r *Record) bool {
	return r.State != nil && r.State.Migration != nil && !m.lax.busy
}

// inPlace gives a key another way to the same KEK. It waits for nothing: what is in the way
// of a rollout may be what this mends.
func (m *machine) inPlace(head *Record, n need) bool {
	m.credentials(head)
	r := *head
	r.Plugin = m.in.Desired.Plugin.clone()
	r.Plugin.Timeout = head.Plugin.Timeout // which is in the file, and changes with it
	m.put(Update, &r, UpdatedInPlace, n.why)
	return true
}

// takeBack has what is under way go back to what was before, as long as nothing can have
// been written with it. After that it has to come to its end: there may be values that
// only those read which have it.
func (m *machine) takeBack(r *Record, why string) bool {
	if r.begun() || r.State.Move.Back != nil || r.Change != nil && r.Change.Tighten {
		m.found.queue(fmt.Sprintf("something else is wanted (%s), and waits for what is under way with key %s", why, r.ID))
		return false
	}
	t := m.ring.task()
	s, err := r.State.Abort(t.old, t.keyless())
	if err != nil {
		m.found.queue(err.Error())
		return false
	}
	back := *r
	s = rotation.Resume(s, m.now)
	back.State = &s
	m.put(Update, &back, TakenBack, why)
	return true
}

// mint makes the next key, of a plugin by what was seen of it on every node.
func (m *machine) mint(n need) bool {
	d, w := &m.in.Desired, m.ring.writer()
	r := &Record{As: "key", ID: m.nextID(), Mode: d.Mode, Reason: n.reason, CreatedAt: m.now, External: d.External, Resources: d.resources(), Strict: d.Strict}
	if w.encrypts() {
		r.Resources, r.Strict = w.Resources, w.Strict // one change at a time
	}
	switch {
	case d.Mode.local() && (len(m.in.Random) != KeySize || bytes.Equal(m.in.Random, make([]byte, KeySize))):
		m.found.key(desiredInvalid, fmt.Sprintf("there are no %d random bytes for a key", KeySize))
		return false
	case d.Mode.local():
		r.Key = bytes.Clone(m.in.Random)
	case d.Mode == KMS:
		if _, err := d.Plugin.at(r.ID); err != nil {
			m.found.key(desiredInvalid, err.Error()+": what is in use stays")
			return false
		}
		r.Plugin = d.Plugin.clone()
		keyID, passed := m.preflight(r.ID, w)
		switch same := w.encrypts() && slices.Contains(m.keyIDs(w), keyID) && !m.lax.same; {
		case !passed:
			return false
		case same:
			m.found.refused(fmt.Sprintf("it names the key_id of key %s, %s, and it is another KEK by what else is known (%s): nothing would be rotated, so see which of the two is true", w.ID, hashed.Short(keyID), n.why))
			return false
		}
		r.KeyIDHash = keyID
	}
	if err := m.begin(r); err != nil {
		m.found.key(desiredInvalid, err.Error())
		return false
	}
	m.put(Create, r, n.reason, n.why)
	return true
}

// nextID is one that no key ever had.
func (m *machine) nextID() bundle.KeyID {
	last := bundle.KeyID(0)
	for _, r := range m.ring {
		last = max(last, r.ID)
	}
	for _, id := range m.in.Present {
		last = max(last, id)
	}
	return last + 1
}

// preflight is the key_id that all nodes saw of what is wanted now, if it passed on each.
func (m *machine) preflight(id bundle.KeyID, w *Record) (keyID string, passed bool) {
	d := &m.in.Desired
	if len(m.in.Secret) < MinSecret {
		m.found.key(desiredInvalid, fmt.Sprintf("there is no secret of %d bytes or more for the hash of a preflight", MinSecret))
		return "", false
	}
	p := &Preflight{As: "preflight", KeyID: id, Plugin: d.Plugin.clone()}
	if w.encrypts() && w.Mode == KMS {
		p.Beside = w.ID
	}
	p.Hash = d.hash(m.in.Secret, p.Beside)
	keyIDs, waits, refused := map[string][]string{}, []string{}, []string{}
	for _, name := range slices.Sorted(slices.Values(m.in.Expected)) {
		v, told := m.in.Verdicts[name]
		switch {
		case m.lax.everywhere && !told:
		case v.Hash != p.Hash && !m.lax.bound:
			waits = append(waits, name+": it was not tried there yet")
		case v.Outcome == Refused:
			refused = append(refused, name+": "+v.Problem)
		case v.Outcome != Passed || v.KeyIDHash == "":
			waits = append(waits, name+": "+v.Problem)
		default:
			keyIDs[v.KeyIDHash] = append(keyIDs[v.KeyIDHash], name)
		}
	}
	m.out.Preflight = p
	switch {
	case len(refused) > 0:
		m.found.refused("the plugin was tried and cannot be used, so no key is made: " + strings.Join(refused, "; ") + "; change the settings, or what they name, or the retry token once it is mended there")
	case len(waits) > 0:
		m.found.tries("the plugin is tried, again and again, before there is a key: " + strings.Join(waits, "; "))
	case len(keyIDs) != 1:
		m.found.tries("the nodes see different key_ids, and have to see one: " + divided(keyIDs))
	default:
		m.out.Preflight = nil
		return slices.Collect(maps.Keys(keyIDs))[0], true
	}
	return "", false
}

// keyIDs are those that a key was known under last.
func (m *machine) keyIDs(r *Record) []string {
	all := []string{r.KeyIDHash, r.Migrated}
	for _, i := range m.in.Observed.Instances {
		for _, name := range names(r, r.Resources) {
			all = append(all, i.Providers[name].KeyID)
		}
	}
	return all
}

// resources has the resources of a key follow those that are wanted, one change at a time.
func (m *machine) resources(r *Record) bool {
	d := &m.in.Desired
	if !r.encrypts() || r.moving() {
		return false
	}
	wanted := d.resources()
	joins, leaves := without(wanted, r.Resources), without(r.Resources, wanted)
	next := Change{Resources: r.Resources}
	switch {
	case len(joins) > 0:
		next.Resources = slices.Sorted(slices.Values(slices.Concat(r.Resources, joins)))
	case len(leaves) > 0:
		next.Resources = wanted
	case d.Strict && !r.Strict:
		next.Tighten = true
	case r.Change == nil && r.again(d):
		return m.loosen(r)
	default:
		return r.Change != nil && m.takeBack(r, "its resources are wanted as they are")
	}
	switch {
	case r.Change != nil && slices.Equal(r.Change.Resources, next.Resources) && r.Change.Tighten == next.Tighten:
		return false
	case r.Change != nil:
		return m.takeBack(r, "other resources are wanted")
	case m.busy(r):
		m.found.queue("other resources are wanted, and wait until all is stored under the present key_id")
		return false
	}
	changed := *r
	changed.Change = &next
	t := r.changing(next)
	s, err := rotation.NewMove(m.plan(t.hashes(), t.resources), t.old, t.new)
	if err != nil {
		m.found.key(desiredInvalid, err.Error())
		return false
	}
	s.Round, changed.State = m.round(), &s
	m.put(Update, &changed, ResourcesChanged, "from "+strings.Join(r.Resources, ", ")+" to "+strings.Join(next.Resources, ", "))
	return true
}

// again reports whether the file of a key at rest is to be another one without a move.
func (r *Record) again(d *Desired) bool {
	return r.Strict && !d.Strict || r.Mode == KMS && r.Plugin.timeout() != d.Plugin.timeout()
}

// loosen has plain text be read again, or gives the calls of the plugin another timeout.
func (m *machine) loosen(r *Record) bool {
	if m.busy(r) {
		return false
	}
	next := *r
	next.Strict = m.in.Desired.Strict
	if r.Mode == KMS {
		next.Plugin = r.Plugin.clone()
		next.Plugin.Timeout = m.in.Desired.Plugin.Timeout
	}
	m.put(Update, &next, UpdatedInPlace, "the file changes, and what is written does not")
	return true
}

func divided(keyIDs map[string][]string) string {
	var all []string
	for _, keyID := range slices.Sorted(maps.Keys(keyIDs)) {
		all = append(all, strings.Join(keyIDs[keyID], ", ")+" "+hashed.Short(keyID))
	}
	return strings.Join(all, "; ")
}
