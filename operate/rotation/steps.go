package rotation

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Planned is one step of a rotation for people to read before it begins, and to
// follow while it goes on.
type Planned struct {
	// What is done, and Gate what has to be seen before the next step.
	What string `json:"what"`
	Gate string `json:"gate"`
	// Done and Now tell how far the rotation is; neither is set for what is to
	// come.
	Done bool `json:"done,omitempty"`
	Now  bool `json:"now,omitempty"`
	// Waiting is what is waited for at the step that is now, where somebody looked.
	Waiting []Waiting `json:"waiting,omitempty"`
}

// Steps are all steps of the rotation, in their order.
func (s State) Steps() []Planned {
	if s.Validate() != nil {
		return nil
	}
	s = s.mirrored()
	planned := s.stepsOfOne
	if s.Move != nil {
		planned = s.stepsOfMove
	}
	all, now := planned()
	for i := range all {
		all[i].Done, all[i].Now = i < now, i == now
	}
	return all
}

func (s State) stepsOfMove() (all []Planned, now int) {
	t := s.Move
	from, to, everywhere := list(t.Old), list(t.New), fmt.Sprintf("each of %s", list(s.Plan.instances()))
	last := Planned{What: fmt.Sprintf("stop the plugin of %s, and disable its key when no backup of etcd needs it", from), Gate: "atrest retire says yes"}
	switch {
	case slices.Equal(t.Old, []string{Plain}):
		last = Planned{What: "destroy the backups of etcd that have it as plain text", Gate: "they are gone"}
	case t.Back != nil && t.Asked && keyless(t.Old):
		last = Planned{What: "destroy the backups of etcd that were made while " + from + " was written with, or keep a copy of it for them from before it is removed", Gate: "they are gone"}
	case keyless(t.Old):
		last = Planned{What: "destroy every copy of " + from + " when no backup of etcd needs it", Gate: "the backups are gone"}
	}
	anew := ""
	if s.Plan.Restarts {
		anew = ", and restart each that does not follow it, one after the other"
	}
	gate := everywhere + " has that configuration in effect and one key_id from a healthy plugin"
	if t.Keyless {
		gate = everywhere + " has that configuration in effect"
	}
	all = []Planned{
		{What: fmt.Sprintf("add %s to the configuration as a provider that is read with", to) + anew,
			Gate: gate},
		{What: fmt.Sprintf("put %s in the place of %s: from now on it writes", to, from) + anew,
			Gate: fmt.Sprintf("%s has that configuration in effect and was seen writing with it, for %s without a break", everywhere, time.Duration(s.Plan.Hold))},
		{What: "rewrite the objects of " + list(s.Plan.Resources), Gate: "every one was rewritten, or is stored that way already"},
		{What: "count what is stored", Gate: "nothing is stored under " + from},
		{What: "remove " + from + " from the configuration" + anew, Gate: everywhere + " has that configuration in effect"},
		{What: "count what is stored once more", Gate: "nothing is stored under " + from + ", or it comes back"},
		last,
	}
	if t.Back != nil {
		all[0].What = fmt.Sprintf("see that %s is a provider that is read with", to)
		for i := range all[:len(all)-1] {
			all[i].What = "go back: " + all[i].What
		}
	}
	return all, slices.Index(steps, t.Step)
}

func (s State) stepsOfOne() (all []Planned, now int) {
	p := s.OnePlugin
	all = []Planned{
		{What: "rotate the key at the KMS", Gate: fmt.Sprintf("each of %s has the same new key_id from a healthy plugin of %s, and was seen writing under it",
			list(s.Plan.instances()), strings.Join(p.Providers, ", "))},
		{What: fmt.Sprintf("wait %s", time.Duration(s.Plan.Hold)), Gate: "nothing of that changed meanwhile"},
		{What: "rewrite the objects of " + list(s.Plan.Resources), Gate: "every one was rewritten, or is stored that way already"},
		{What: "count what is stored", Gate: "everything is stored under the new key_id"},
		{What: "disable the former key when no backup of etcd needs it", Gate: "atrest retire says yes"},
	}
	switch {
	case s.Migration != nil:
		return all, 2
	case p.Candidate != nil:
		return all, 1
	case p.Target == "":
		return all, 0
	case p.ProvenAt.IsZero():
		return all, 3
	}
	return all, 4
}
