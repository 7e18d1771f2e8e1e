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

// Move is the rotation from what writes to something else: from a plugin that knows
// one version of its key for all its life to another, or from or to a key in the file,
// or to none.
type Move struct {
	// Old and New are names of providers as a [Count] has them: one each, or several
	// where each resource has a provider of its own, or a provider several keys. Those
	// are replaced together.
	Old []string `json:"old"`
	New []string `json:"new"`
	// Keyless is that no apiserver tells a key_id of the new ones, as they are keys in
	// its file, none at all, or KMS v1. What they write is what was shown.
	Keyless bool `json:"keyless,omitempty"`
	// Step is the one under way, since when.
	Step  Step      `json:"step"`
	Since time.Time `json:"since,omitzero"`
	// Asked is that an apiserver was asked to write with the new one, or had it in its
	// place: objects may be stored with it from then on, whatever the step is.
	Asked bool `json:"asked,omitempty"`
	// AgreedAt is since when all apiservers write with the new provider without a
	// break, and KeyID the hash of what under. Both are empty if they do not.
	AgreedAt time.Time `json:"agreedAt,omitzero"`
	KeyID    string    `json:"keyID,omitempty"`
	// Former are the hashes of the key_ids that the old provider was seen with.
	Former []string `json:"former,omitempty"`
	// Finished tells that it was said once that the old plugin may be stopped. No
	// configuration is changed after that.
	Finished bool `json:"finished,omitempty"`
	// Removing is that an apiserver was asked to be without the old one: there is no way
	// back from then on. One that somebody else has so is given the old one again.
	Removing bool `json:"removing,omitempty"`
	// Back is that it goes back to what wrote before. Old and New, and the order of the
	// files in the plan, stay as they are; the steps are those of the way back.
	Back *Back `json:"back,omitempty"`
}

// Step is a step of [Move].
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
	// stepConfirm looks for it once more.
	stepConfirm Step = "confirm"
	// stepDone is the end. Who goes on confirms it again.
	stepDone Step = "done"
)

var steps = []Step{stepAdd, stepSwap, stepMigrate, stepProve, stepRemove, stepConfirm, stepDone}

// NewMove begins a rotation from the providers old to the providers new.
func NewMove(p Plan, old, new []string) (State, error) {
	s := State{Version: version, Plan: p.withDefaults(),
		Move: &Move{Old: slices.Clone(old), New: slices.Clone(new), Keyless: keyless(new), Step: stepAdd}}
	return s, s.Validate()
}

// keyless reports whether none of the providers is a KMS.
func keyless(providers []string) bool {
	return !slices.ContainsFunc(providers, func(name string) bool { return !IsLocal(name) })
}

func (t *Move) validate(migrating bool) error {
	if !slices.Contains(steps, t.Step) {
		return fmt.Errorf("step %q is not known", t.Step)
	}
	if t.KeyID == "" && t.Back == nil && slices.Index(steps, t.Step) > slices.Index(steps, stepSwap) {
		return fmt.Errorf("step %q needs the key_id that all write under", t.Step)
	}
	if migrating != (t.Step == stepMigrate) {
		return fmt.Errorf("a migration belongs to step %q and to no other, this is %q", stepMigrate, t.Step)
	}
	if slices.ContainsFunc(t.New, func(name string) bool { return slices.Contains(t.Old, name) }) {
		return errors.New("the new provider has the name of the old one: stored values name their provider, give it another")
	}
	return errors.Join(namesOf("old provider", t.Old), namesOf("new provider", t.New), t.Back.validate(t.Old))
}

// Begun reports whether the new one may have been written with.
func (t *Move) Begun() bool { return t.Asked || t.Back == nil && t.Step != stepAdd }

// reopen has a rotation that is done prove itself again.
func (t *Move) reopen(now time.Time) {
	t.Step, t.Since, t.Finished = stepConfirm, now, true
}

func (s *State) nextOfMove(o Observation, v *view) Decision {
	t := s.Move
	v.keyless, v.unused = t.Keyless, t.unused()
	at := s.place(v)
	if t.Step == stepDone {
		t.reopen(v.now)
	}
	if v.located {
		t.Former = remember(t.Former, v.keyIDs(t.Old)...)
		t.Former = remember(t.Former, o.Audit.keyIDs(t.Old)...)
	}
	t.Asked = t.Begun() || at.swapped()
	v.unfit(at)
	s.fallBack(v, at)
	var kept []Action
	if !t.Finished {
		kept = v.keep(s.Plan, at)
	}
	if t.Since.IsZero() || t.Since.After(v.now) {
		t.Since = v.now
	}
	for {
		was := t.Step
		d, over := s.step(o, v, at)
		switch {
		case over:
			t.Step, t.Since = steps[slices.Index(steps, was)+1], v.now
			t.Asked, t.Removing = t.Begun(), t.Removing || t.Back == nil && t.Step == stepRemove
			at = s.place(v)
		case t.Step == was || s.Migration != nil:
			d.Actions = slices.Concat(kept, d.Actions, v.canaries()) // whatever a file on its disk is
			d.Waiting = append(v.waiting(), d.Waiting...)
			return d
		}
		if t.Step == stepDone {
			t.Finished = true
			return d
		}
	}
}

// back goes back to a step.
func (s *State) back(to Step, now time.Time) {
	t := s.Move
	t.Step, t.Since, s.Migration = to, now, nil
	if slices.Index(steps, to) <= slices.Index(steps, stepSwap) {
		t.AgreedAt, t.KeyID, t.Asked = time.Time{}, "", true
	}
}

// fallBack goes back to the step that an apiserver went back to: it may have
// written with the old provider since. So may one with a configuration that is
// none of the plan's. A rotation that was finished stays where it is.
func (s *State) fallBack(v *view, at place) {
	t := s.Move
	if t.Finished {
		return
	}
	for _, to := range []struct {
		from, step Step
		needs      Stage
	}{{stepSwap, stepAdd, Added}, {stepMigrate, stepSwap, Swapped}, {stepConfirm, stepProve, Removed}} {
		if slices.Index(steps, t.Step) < slices.Index(steps, to.from) {
			break
		}
		for name, stage := range at.effect {
			if file, known := at.file[name]; known && to.needs == Removed {
				stage = min(stage, file)
			}
			if stage < to.needs.index() {
				s.countAfter(s.late(v.now, v.lax))
				s.back(to.step, v.now)
				return
			}
		}
	}
	if t.Step == stepMigrate && at.highest() > Swapped.index() { // who cannot read what is rewritten yet is to
		s.back(stepSwap, v.now)
	}
	if v.found[ForeignConfig] != nil && slices.Index(steps, t.Step) > slices.Index(steps, stepSwap) {
		s.back(stepSwap, v.now)
	}
}

// step is what there is to do in the present step, or that it is over. It may have
// gone to another.
func (s *State) step(o Observation, v *view, at place) (d Decision, over bool) {
	t := s.Move
	switch t.Step {
	case stepAdd:
		if !s.pushable(v, at.effect, Added) {
			return d, false
		}
		if d, over = s.push(v, at, Added); over && len(v.found) == 0 {
			return d, v.agree(t.New) != ""
		}
		return d, false
	case stepSwap:
		if !s.pushable(v, at.effect, Swapped) {
			return d, false
		}
		if d, over = s.push(v, at, Swapped); !over && (len(v.found) > 0 || v.disk[missing] == nil || v.disk[ForeignConfig] != nil) {
			t.AgreedAt, t.KeyID = time.Time{}, ""
			return d, false
		}
		return s.hold(v)
	case stepMigrate:
		mayStart := v.converged(t.New, time.Time{}) != ""
		s.unsettle(v, false)
		return s.migrate(o, t.New, mayStart, v.now)
	case stepProve:
		return s.proveGone(o, v, at)
	case stepRemove:
		return s.remove(o, v, at)
	default: // stepConfirm
		return s.confirm(o, v, at)
	}
}

// pushable reports whether a configuration may be brought to a stage: nothing was
// found that speaks against it, the new plugin has a key of its own, and each
// apiserver was shown to write as its configuration says, if all others can read
// that by theirs. Once something may be stored with the new one, who cannot read it
// shows nothing, and is given it all the same: nothing else helps.
func (s *State) pushable(v *view, at map[string]int, to Stage) bool {
	t := s.Move
	lowest, highest := len(Stages), -1
	for _, stage := range at {
		lowest, highest = min(lowest, stage), max(highest, stage)
	}
	if lowest >= to.index() {
		return true
	}
	old := v.keyIDs(t.Old)
	for name, stage := range at {
		switch {
		case to == Added && t.Asked:
		case stage < Swapped.index() && highest < Removed.index():
			v.show(name, t.Old, time.Time{}, v.lax.identity || t.Back != nil)
		case stage >= Swapped.index() && lowest > Before.index():
			v.show(name, t.New, time.Time{}, v.lax.identity)
		}
		for _, provider := range t.New {
			if keyID := v.usable[name].Providers[provider].KeyID; keyID != "" && slices.Contains(old, keyID) && !v.lax.same && t.Back == nil {
				v.note(sameKey, name, "provider "+provider+" names key_id "+keyID+", which is that of "+list(t.Old)+": nothing would be rotated")
				v.found[sameKey].Remedy = "give the new plugin a key of its own"
			}
		}
	}
	return len(v.found) == 0
}

// hold waits until all apiservers have written under one key_id of the new
// provider for long enough, and begins the migration.
func (s *State) hold(v *view) (d Decision, over bool) {
	t := s.Move
	keyID := v.converged(t.New, t.Since)
	switch {
	case keyID == "":
		t.AgreedAt, t.KeyID = time.Time{}, ""
		return Decision{}, false
	case keyID != t.KeyID || t.AgreedAt.IsZero() || t.AgreedAt.After(v.now):
		t.AgreedAt, t.KeyID = v.now, keyID
	}
	until := t.AgreedAt.Add(time.Duration(s.Plan.Hold))
	if v.now.Before(until) {
		return Decision{Waiting: []Waiting{{Reason: holding, Until: until, KeyIDs: map[string][]string{keyID: slices.Clone(v.expected)}}}}, false
	}
	if len(v.disk) > 0 {
		return Decision{}, false
	}
	s.begin(keyID, s.Plan.Resources)
	return Decision{}, true
}

// stages finds out which configuration of the plan is in effect where.
func (v *view) stages(p Plan, index func(hashes []string, hash string) int) map[string]int {
	at := map[string]int{}
	for _, name := range v.expected {
		i, usable := v.usable[name]
		if !usable {
			continue
		}
		stage := index(p.Configs[name], i.ConfigHash)
		switch {
		case i.ConfigHash == "":
			v.note(missing, name, "tells no hash of its configuration")
		case stage < 0:
			v.note(ForeignConfig, name, i.ConfigHash)
		default:
			at[name] = stage
		}
	}
	return at
}

// lastIndex is the last place of a hash: what is read with already need not be added.
func lastIndex(hashes []string, hash string) int {
	for i, h := range slices.Backward(hashes) {
		if h == hash {
			return i
		}
	}
	return -1
}
