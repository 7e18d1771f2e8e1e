package rotation

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Stage is one of the four configurations of a rotation with two plugins.
type Stage string

// The stages, by what providers the configuration has in which order.
const (
	// Before: the old provider alone.
	Before Stage = "before"
	// Added: the old provider, and the new one to read.
	Added Stage = "added"
	// Swapped: the new provider, and the old one to read.
	Swapped Stage = "swapped"
	// Removed: the new provider alone.
	Removed Stage = "removed"
)

// Stages are in the order in which they take effect.
var Stages = [...]Stage{Before, Added, Swapped, Removed}

func (s Stage) index() int { return slices.Index(Stages[:], s) }

// TwoPlugins is the rotation from one plugin to another, each of which knows one
// version of the key.
type TwoPlugins struct {
	// Old and New are provider names: one each, or several on the same plugin
	// where each resource has a provider of its own. Those are replaced together.
	Old []string `json:"old"`
	New []string `json:"new"`
	// Step is the one under way, since when.
	Step  Step      `json:"step"`
	Since time.Time `json:"since,omitzero"`
	// AgreedAt is since when all apiservers write with the new provider without a
	// break, and KeyID the hash of what under. Both are empty if they do not.
	AgreedAt time.Time `json:"agreedAt,omitzero"`
	KeyID    string    `json:"keyID,omitempty"`
	// Former are the hashes of the key_ids that the old provider was seen with.
	Former []string `json:"former,omitempty"`
}

// Step is a step of [TwoPlugins].
type Step string

// The steps. One begins when the one before is confirmed, and the rotation goes
// back when an apiserver does.
const (
	// stepAdd brings the new provider to all as one that reads.
	stepAdd Step = "add"
	// stepSwap makes it the one that writes.
	stepSwap Step = "swap"
	// stepMigrate rewrites what was written before.
	stepMigrate Step = "migrate"
	// stepProve looks for what is left under the old provider.
	stepProve Step = "prove"
	// stepRemove takes the old provider away.
	stepRemove Step = "remove"
	// stepDone is the end.
	stepDone Step = "done"
)

var steps = []Step{stepAdd, stepSwap, stepMigrate, stepProve, stepRemove, stepDone}

// NewTwoPlugins begins a rotation from the providers old to the providers new.
func NewTwoPlugins(p Plan, old, new []string) (State, error) {
	s := State{Version: version, Plan: p.withDefaults(),
		TwoPlugins: &TwoPlugins{Old: slices.Clone(old), New: slices.Clone(new), Step: stepAdd}}
	return s, s.Validate()
}

func (t *TwoPlugins) validate(migrating bool) error {
	if !slices.Contains(steps, t.Step) {
		return fmt.Errorf("step %q is not known", t.Step)
	}
	if t.KeyID == "" && slices.Index(steps, t.Step) > slices.Index(steps, stepSwap) {
		return fmt.Errorf("step %q needs the key_id that all write under", t.Step)
	}
	if migrating != (t.Step == stepMigrate) {
		return fmt.Errorf("a migration belongs to step %q and to no other, this is %q", stepMigrate, t.Step)
	}
	if slices.ContainsFunc(t.New, func(name string) bool { return slices.Contains(t.Old, name) }) {
		return errors.New("the new provider has the name of the old one: stored values name their provider, give it another")
	}
	return errors.Join(namesOf("old provider", t.Old), namesOf("new provider", t.New))
}

func (s *State) nextOfTwo(o Observation, now time.Time) Decision {
	t := s.TwoPlugins
	v := look(s.Plan.instances(), time.Duration(s.Plan.MaxAge), o, now)
	at := v.stages(s.Plan)
	if t.Step == stepDone {
		return t.done()
	}
	t.Former = remember(t.Former, v.keyIDs(t.Old)...)
	t.Former = remember(t.Former, o.Audit.keyIDs(t.Old)...)
	s.fallBack(v, at, now)
	if t.Since.IsZero() || t.Since.After(now) {
		t.Since = now
	}
	for {
		d, over := s.step(o, v, at, now)
		if !over {
			d.Waiting = append(v.waiting(), d.Waiting...)
			return d
		}
		t.Step, t.Since = steps[slices.Index(steps, t.Step)+1], now
		if t.Step == stepDone {
			return t.done()
		}
	}
}

func (t *TwoPlugins) done() Decision {
	return Decision{Actions: []Action{Done{KeyID: t.KeyID, Providers: slices.Clone(t.Old), KeyIDs: without(t.Former, t.KeyID)}}}
}

// fallBack goes back to the step that an apiserver went back to: it may have
// written with the old provider since. So may one with a configuration that is
// none of the plan's.
func (s *State) fallBack(v *view, at map[string]int, now time.Time) {
	t := s.TwoPlugins
	back := func(to Step) {
		t.Step, t.Since, t.AgreedAt, t.KeyID = to, now, time.Time{}, ""
		s.Migration = nil
	}
	for _, to := range []struct {
		step  Step
		needs Stage
	}{{stepAdd, Added}, {stepSwap, Swapped}} {
		if slices.Index(steps, t.Step) <= slices.Index(steps, to.step) {
			return
		}
		for _, stage := range at {
			if stage < to.needs.index() {
				back(to.step)
				return
			}
		}
	}
	if v.found[foreignConfig] != nil {
		back(stepSwap)
	}
}

// step is what there is to do in the present step, or that it is over.
func (s *State) step(o Observation, v *view, at map[string]int, now time.Time) (d Decision, over bool) {
	t := s.TwoPlugins
	switch t.Step {
	case stepAdd:
		if d = v.push(s.Plan, at, Added); len(v.found) == 0 {
			return d, v.agree(t.New) != ""
		}
		return d, false
	case stepSwap:
		if d = v.push(s.Plan, at, Swapped); len(d.Actions) > 0 {
			t.AgreedAt, t.KeyID = time.Time{}, ""
			return d, false
		}
		return s.hold(v, now)
	case stepMigrate:
		mayStart := v.converged(t.New, time.Time{}) != ""
		d, over = s.migrate(o, t.New, mayStart, now)
		d.Actions = append(d.Actions, v.canaries(t.New)...)
		return d, over
	case stepProve:
		return s.proveGone(o, v, now)
	default: // stepRemove
		d = v.push(s.Plan, at, Removed)
		return d, len(v.found) == 0
	}
}

// hold waits until all apiservers have written under one key_id of the new
// provider for long enough, and begins the migration.
func (s *State) hold(v *view, now time.Time) (d Decision, over bool) {
	t := s.TwoPlugins
	keyID := v.converged(t.New, t.Since)
	switch {
	case keyID == "":
		t.AgreedAt, t.KeyID = time.Time{}, ""
		return Decision{Actions: v.canaries(t.New)}, false
	case keyID != t.KeyID || t.AgreedAt.IsZero() || t.AgreedAt.After(now):
		t.AgreedAt, t.KeyID = now, keyID
	}
	until := t.AgreedAt.Add(time.Duration(s.Plan.Hold))
	if now.Before(until) {
		return Decision{Waiting: []Waiting{{Reason: holding, Until: until, KeyIDs: map[string][]string{keyID: slices.Clone(v.expected)}}}}, false
	}
	s.begin(keyID, s.Plan.Resources)
	return Decision{}, true
}

// proveGone is over when an audit finds nothing under the old provider while all
// apiservers are known to write with the new one.
func (s *State) proveGone(o Observation, v *view, now time.Time) (d Decision, over bool) {
	t := s.TwoPlugins
	settled := v.converged(t.New, time.Time{}) != ""
	d, over, again := s.prove(o, func(c Count) bool { return slices.Contains(t.Old, c.Provider) }, settled, now)
	if len(again) > 0 {
		t.Step, t.Since = stepMigrate, now
		s.begin(t.KeyID, again)
		d, _ = s.migrate(o, t.New, true, now)
	}
	d.Actions = append(d.Actions, v.canaries(t.New)...)
	return d, over && settled
}

// stages finds out which configuration of the plan is in effect where.
func (v *view) stages(p Plan) map[string]int {
	at := map[string]int{}
	for _, name := range v.expected {
		i, usable := v.usable[name]
		if !usable {
			continue
		}
		stage := slices.Index(p.Configs[name], i.ConfigHash)
		switch {
		case i.ConfigHash == "":
			v.note(missing, name, "tells no hash of its configuration")
		case stage < 0:
			v.note(foreignConfig, name, i.ConfigHash)
		default:
			at[name] = stage
		}
	}
	return at
}

// push asks for a stage wherever it is not in effect yet, but only while every
// apiserver is known to have the one before, which fallBack sees to: no
// apiserver may write what another cannot read.
func (v *view) push(p Plan, at map[string]int, to Stage) Decision {
	hashes := map[string]string{}
	for name, stage := range at {
		if stage < to.index() {
			hashes[name] = p.Configs[name][to.index()]
			v.note(otherConfig, name, "has the one of stage "+string(Stages[stage]))
		}
	}
	if len(hashes) == 0 || len(at) < len(v.expected) {
		return Decision{}
	}
	return Decision{Actions: []Action{WriteConfig{Stage: to, Hashes: hashes}}}
}
