package keys

import (
	"slices"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// task is the move that is under way: from one key to the next, or of some resources of a
// key that is in use. It follows from the records alone, so that whoever has them has
// every configuration on the way again, byte for byte.
type task struct {
	// of is the record that has the state of it.
	of        *Record
	old, new  []string // providers
	resources []string
	stages    [len(rotation.Stages)]Config
	// least is the index of the first stage that anyone may have.
	least int
}

// hashes are those of the stages.
func (t *task) hashes() (all []string) {
	for _, c := range t.stages {
		all = append(all, c.Hash)
	}
	return all
}

// task is nil if none is under way.
func (k ring) task() *task {
	w := k.writer()
	switch n := k.moving(); {
	case n != nil:
		return between(w, n)
	case w != nil && w.Change != nil:
		return w.changing(*w.Change)
	}
	return nil
}

// between is the move from the key that is written with to the next one.
func between(w, n *Record) *task {
	t := &task{of: n, resources: n.Resources, old: names(w, n.Resources), new: names(n, n.Resources)}
	plain := !w.encrypts() || !n.encrypts() || !w.Strict
	before := nothing()
	if w != nil {
		before = w.atRest(w.Resources, w.Strict)
	}
	added, swapped := entries(n.Resources, plain, w, n), entries(n.Resources, plain, n, w)
	t.stages = [...]Config{before, configOf(added, rotation.Added), configOf(swapped, rotation.Swapped), n.atRest(n.Resources, n.Strict)}
	return t
}

// changing is the move of resources from plain text to a key, or back; or of none, to
// prove that nothing is plain text.
func (r *Record) changing(to Change) *task {
	joins, leaves := without(to.Resources, r.Resources), without(r.Resources, to.Resources)
	before, removed := r.atRest(r.Resources, r.Strict), r.atRest(to.Resources, r.Strict || to.Tighten)
	if to.Tighten {
		// All of them have the third configuration from the beginning, which says the same
		// as the two before.
		return &task{of: r, resources: r.Resources, old: []string{rotation.Plain}, new: names(r, r.Resources), least: 2, stages: [...]Config{
			configOf(before.Entries, rotation.Before), configOf(before.Entries, rotation.Added), before, removed}}
	}
	var added, swapped []Entry
	for _, resource := range slices.Sorted(slices.Values(slices.Concat(r.Resources, joins))) {
		encrypted, plain := reading(resource, true, r), reading(resource, true, nil, r)
		switch {
		case slices.Contains(joins, resource):
			added, swapped = append(added, plain), append(swapped, encrypted)
		case slices.Contains(leaves, resource):
			added, swapped = append(added, encrypted), append(swapped, plain)
		default:
			e := reading(resource, !r.Strict, r)
			added, swapped = append(added, e), append(swapped, e)
		}
	}
	t := &task{of: r, resources: joins, old: []string{rotation.Plain}, new: names(r, joins)}
	if len(leaves) > 0 {
		t.resources, t.old, t.new = leaves, names(r, leaves), []string{rotation.Plain}
	}
	t.stages = [...]Config{before, configOf(added, rotation.Added), configOf(swapped, rotation.Swapped), removed}
	return t
}

// keyless reports whether nothing old has a key_id.
func (t *task) keyless() bool {
	return !slices.ContainsFunc(t.old, func(name string) bool { return !rotation.IsLocal(name) })
}

func without(all []string, not []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(not, s) })
}
