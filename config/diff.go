package config

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Change is what another file means for a resource, or for all resources of a
// group or of the server that have no rule of their own.
type Change struct {
	// Resource is as a file names it, with "*" for all.
	Resource string
	// From and To are what values are written with, if that changes: a key or a
	// KMS provider by its name, or identity.
	From, To string
	// Added is what is read with from now on, and Removed what no longer is:
	// values under it become unreadable.
	Added, Removed []string
	// Warnings are about what the change needs beforehand: that nothing is stored
	// under what is Removed, and that all apiservers read what one of them writes.
	// Each says what to do, in one line.
	Warnings []string
}

// String is one line, without key material.
func (c Change) String() string {
	var parts []string
	if c.From != c.To {
		parts = append(parts, fmt.Sprintf("written with %s, no longer with %s", c.To, c.From))
	}
	if len(c.Added) > 0 {
		parts = append(parts, "also read with "+strings.Join(c.Added, ", "))
	}
	if len(c.Removed) > 0 {
		parts = append(parts, "no longer read with "+strings.Join(c.Removed, ", "))
	}
	return c.Resource + ": " + strings.Join(parts, "; ")
}

// Diff is what changes when from is replaced by to, by resource, in the order
// of the files.
func Diff(from, to *Configuration) []Change {
	var changes []Change
	seen := map[schema.GroupResource]bool{}
	for _, rule := range slices.Concat(to.rules, from.rules) {
		if seen[rule.Resource] {
			continue
		}
		seen[rule.Resource] = true
		if c, changed := diffResource(rule.Resource, from, to); changed {
			changes = append(changes, c)
		}
	}
	return changes
}

func diffResource(r schema.GroupResource, from, to *Configuration) (Change, bool) {
	was, is := from.meansOf(r), to.meansOf(r)
	c := Change{Resource: nameOf(r), Added: missing(is, was), Removed: missing(was, is)}
	if !was[0].Equal(is[0]) {
		c.From, c.To = was[0].Name, is[0].Name
		if c.From == c.To { // another key, or another plugin, of the same name
			c.To = "another " + c.To
		}
	}
	c.Warnings = warningsOf(c, !slices.ContainsFunc(was, is[0].Equal))
	return c, c.From != c.To || len(c.Added)+len(c.Removed) > 0
}

// warningsOf are those of a change; unknown tells that what is written with then
// was not read with before.
func warningsOf(c Change, unknown bool) []string {
	var texts []string
	if len(c.Removed) > 0 {
		texts = append(texts, fmt.Sprintf("what is stored with %s stops being readable: "+
			"look first whether anything is, with: atrest check NEW --etcd", strings.Join(c.Removed, ", ")))
	}
	if unknown {
		texts = append(texts, fmt.Sprintf("%s is written with at once, and was not read with before: "+
			"apiservers that still have the old file cannot read what the others write; add it after the first provider, "+
			"wait until every apiserver has that file, and then put it first", c.To))
	}
	return texts
}

// missing names what is in these and not in those.
func missing(these, those []Means) []string {
	var names []string
	for _, m := range these {
		if !slices.ContainsFunc(those, m.Equal) {
			names = append(names, m.Name)
		}
	}
	return names
}
