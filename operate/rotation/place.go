package rotation

import (
	"maps"
	"slices"
	"strings"
)

// place is where the instances are, by name: the stage that is in effect there, and the
// one of the file, which an instance has after its next start. What is not known, or is
// no stage of the plan, is missing.
type place struct {
	effect, file map[string]int
	back         bool // the stages are those of the way back
}

// place finds out where the instances are.
func (s *State) place(v *view) place {
	index := lastIndex
	if back := s.Move.Back != nil; back && slices.Index(steps, s.Move.Step) < slices.Index(steps, stepRemove) {
		index = slices.Index[[]string] // as what was read with already is not taken away
	}
	return place{v.stages(s.Plan, index), v.files(s.Plan, index), s.Move.Back != nil}
}

// highest is the latest stage that is in effect or in a file anywhere.
func (p place) highest() int {
	highest := -1
	for _, stages := range []map[string]int{p.effect, p.file} {
		for _, stage := range stages {
			highest = max(highest, stage)
		}
	}
	return highest
}

// swapped reports whether what the move is to, or on the way back what it goes back from,
// writes anywhere or is to.
func (p place) swapped() bool {
	if !p.back {
		return p.highest() >= Swapped.index()
	}
	for _, stages := range []map[string]int{p.effect, p.file} {
		for _, stage := range stages {
			if stage < Swapped.index() {
				return true
			}
		}
	}
	return false
}

// files finds out of which stages the files are.
func (v *view) files(p Plan, index func(hashes []string, hash string) int) map[string]int {
	all := map[string]int{}
	for _, name := range v.expected {
		if stage := index(p.Configs[name], v.all[name].FileHash); stage >= 0 {
			all[name] = stage
		}
	}
	return all
}

// unfit tells of the files that are none of the plan's, or could not be read. No step
// that goes by them ends so. What is in effect is known all the same: nothing that was
// held or counted by it is taken back.
func (v *view) unfit(at place) {
	known := v.found
	v.found = map[Reason]*Waiting{}
	for _, name := range v.expected {
		i, usable := v.usable[name]
		switch {
		case !usable, !has(at.effect, name), has(at.file, name):
		case i.FileHash == "":
			v.note(missing, name, strings.TrimSuffix("its configuration file could not be read: "+i.FileProblem, ": "))
		default:
			v.note(ForeignConfig, name, "its file has hash "+i.FileHash+", which it will have at its next start")
		}
	}
	v.found, v.disk = known, v.found
}

// keep asks for other files where the next start of an apiserver would have it write
// what another cannot read, or not read what is written: somebody put a file back, or it
// was written ahead of a restart and another apiserver went back since. One that writes
// with the new provider is to go on, and any other not to begin.
func (v *view) keep(p Plan, at place) []Action {
	effect := maps.Clone(at.file)
	maps.Copy(effect, at.effect)
	lowest := len(Stages)
	for name, stage := range effect {
		lowest = min(lowest, stage)
		if file, known := at.file[name]; known {
			lowest = min(lowest, file)
		}
	}
	hashes := map[Stage]map[string]string{}
	for name, file := range at.file {
		to := Added
		if effect[name] >= Swapped.index() {
			to = Swapped
		}
		ahead := file > to.index() && (lowest == Before.index() || lowest < Swapped.index() && file == Removed.index())
		if putBack := file < to.index() && effect[name] > Before.index(); ahead || putBack {
			hashes[to] = put(hashes[to], name, p.Configs[name][to.index()])
			v.note(otherConfig, name, at.of(name))
		}
	}
	var all []Action
	for _, to := range []Stage{Swapped, Added} { // what reads both first
		if hashes[to] != nil {
			all = append(all, WriteConfig{Stage: to, Hashes: hashes[to]})
		}
	}
	return all
}

// of says for people where an instance is.
func (p place) of(name string) string {
	effect, running := p.effect[name]
	file, known := p.file[name]
	switch {
	case !running:
		return "its file is that of stage " + p.stage(file)
	case known && file < effect:
		return "has the one of stage " + p.stage(effect) + "; its file is that of stage " + p.stage(file) + ", and it will have it at its next start"
	case known && file > effect:
		return "has the one of stage " + p.stage(effect) + "; its file is that of stage " + p.stage(file) + " already"
	}
	return "has the one of stage " + p.stage(effect)
}

// stage is what a stage of the plan is called.
func (p place) stage(at int) string { return string(mirrored(Stages[at], p.back)) }

// lags notes an instance that has not a stage both in effect and in its file, and reports
// whether its file is to be written.
func (v *view) lags(name string, at place, to Stage) (write bool) {
	wrong := func(stage int) bool { return stage < to.index() || to == Swapped && stage > to.index() }
	effect, running := at.effect[name]
	file, known := at.file[name]
	i, usable := v.usable[name]
	switch {
	case !usable, i.ConfigHash == "", !running && (known || i.FileHash == ""):
		return false // which is noted
	case i.FileHash == "":
		file = effect
	case !known:
		return true // which is noted
	}
	if wrong(effect) || wrong(file) {
		v.note(otherConfig, name, at.of(name))
		if !wrong(file) {
			v.found[otherConfig].Remedy = "restart those that do not follow their file, or have --restart-hook do it; those that do see no change of one that is mounted by itself: mount its folder"
		}
	}
	return wrong(file) && i.FileHash != ""
}

// push asks for a stage wherever another is in effect or in the file, and reports whether
// there is none. No apiserver may write what another cannot read, now or after its next
// start, so it asks for nothing unless every apiserver is known to have the stage before
// or one after, which fallBack and keep see to. A file that is none of the plan's, which
// may be half of one, comes before any other. And the new provider is added to one
// apiserver first, and written with by one, until that is seen to be well.
func (s *State) push(v *view, at place, to Stage) (d Decision, over bool) {
	kept := v.found[otherConfig] != nil
	hashes := map[string]string{}
	foreign := false
	for _, name := range v.expected {
		if v.lags(name, at, to) {
			hashes[name] = s.Plan.Configs[name][to.index()]
			_, known := at.file[name]
			foreign = foreign || !known
		}
	}
	if len(at.effect) < len(v.expected) || v.found[missing] != nil || v.found[stale] != nil || v.disk[missing] != nil {
		return d, false
	}
	over = v.found[otherConfig] == nil && v.found[ForeignConfig] == nil && len(v.disk) == 0
	if kept || len(hashes) == 0 {
		return d, over
	}
	first := s.first(v, at, to)
	maps.DeleteFunc(hashes, func(name, _ string) bool {
		_, known := at.file[name]
		return foreign && known || !foreign && first != nil && !slices.Contains(first, name)
	})
	if len(hashes) > 0 {
		d.Actions = []Action{WriteConfig{Stage: to, Hashes: hashes}}
	}
	return d, false
}

// first are those that come before the others to a stage, or nil if one of them is
// there and well.
func (s *State) first(v *view, at place, to Stage) (first []string) {
	if to == Removed {
		return nil
	}
	for _, name := range v.expected {
		switch {
		case at.effect[name] < to.index() && at.file[name] < to.index():
		case at.effect[name] >= to.index() && v.well(name, s.Move): // what it writes with was shown
			return nil
		default:
			first = append(first, name)
		}
	}
	switch {
	case first != nil:
		return first
	case slices.Contains(v.expected, s.Plan.First):
		return []string{s.Plan.First}
	}
	return v.expected[:1]
}

// well reports whether the new provider is of use to an instance, and notes why not.
func (v *view) well(name string, t *Move) bool {
	if t.Keyless {
		return true
	}
	lacks := v.usable[name].Lacks(t.New)
	v.lack(name, lacks)
	by := Holders(map[string]Instance{name: v.usable[name]}, t.New)
	if len(by) > 1 {
		v.note(divergent, name, "")
		v.found[divergent].KeyIDs, v.found[divergent].Remedy = by, "each of "+list(t.New)+" is on a plugin of its own: name those on one plugin, and rotate the others after them"
	}
	return len(lacks) == 0 && len(by) == 1
}
