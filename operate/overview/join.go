package overview

import (
	"maps"
	"slices"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// newcomer is what an apiserver is called that has not joined yet.
const newcomer = "this node"

// Join says what is in the way of one more apiserver, or not known of it, if it told what
// with tells: that it and the others do not agree, that one of them has not taken its file
// into use, cannot be seen, or is not named. How well the plugins of the others are does
// not count, and neither does what is stored.
func Join(s Seen, with rotation.Instance) []Problem {
	with.CheckedAt, with.Complete = s.Ended, true
	s.Told = maps.Clone(s.Told)
	s.Told[newcomer] = with
	s.Apiservers = append(slices.Clone(s.Apiservers), newcomer)
	j := judge{seen: s, usable: map[string]rotation.Instance{}}
	for _, name := range s.Apiservers {
		j.see(name)
	}
	j.compare()
	if silent := j.incomplete(); s.SeparateConfigs && len(silent) > 0 {
		j.add(Unknown, Problem{Apiservers: silent, What: "what " + list(silent) + " stores each resource with is not known",
			Why: "a kube-apiserver does not tell it; without --separate-configs the files are compared"})
	}
	j.others()
	return j.problems
}
