package rotation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Back is the way back of a [Move]. It is a move, too: its ends are exchanged, and the
// order of its files, so that the former swap is what has the new one added, and so on.
// [Next] is the same for both, but that what it goes back from need not work: that may be
// why, and what writes with it and what does not are read by all.
type Back struct {
	// With are those of Old that wrote before, and Keyless is as that of a [Move].
	With    []string `json:"with"`
	Keyless bool     `json:"keyless,omitempty"`
}

// ErrNoWayBack says that a rotation cannot be taken back, or not any more.
var ErrNoWayBack = errors.New("there is no way back")

// validate checks what is gone back to.
func (b *Back) validate(old []string) error {
	switch {
	case b == nil:
		return nil
	case slices.ContainsFunc(b.With, func(name string) bool { return !slices.Contains(old, name) }):
		return fmt.Errorf("it goes back to %s, which is not what it began with", list(b.With))
	}
	return namesOf("provider that it goes back to", b.With)
}

// unused reports whether it goes back from what nothing was ever written with.
func (t *Move) unused() bool { return t.Back != nil && !t.Asked }

// Abort is a State that goes back to what wrote before, which are those of Old in with;
// keyless is as in a [Move]. One that goes back already stays as it is. It has to be given
// to [Resume]. It is an error where there is no way back, and says what there is instead.
func (s State) Abort(with []string, keyless bool) (State, error) {
	switch {
	case s.Move == nil:
		return s, fmt.Errorf("%w: the key_id was changed at the KMS and no configuration was, so that nothing can be taken back from here: "+
			"if the KMS can, have it use the former version of its key again, and rotate to that with atrest rotate one-plugin, without --from and with a new folder", ErrNoWayBack)
	case s.Move.Back != nil:
		return s, nil
	case s.Move.Removing || slices.Index(steps, s.Move.Step) >= slices.Index(steps, stepRemove):
		return s, fmt.Errorf("%w: it was begun to remove %s: let this end with the command that it began with, "+
			"and rotate the other way then, with atrest rotate --to %s and a new folder", ErrNoWayBack, list(s.Move.Old), targets(s.Move.Old))
	}
	t := *s.Move
	s.Migration, s.Told = nil, nil
	s.Move = &Move{Old: t.Old, New: t.New, Keyless: t.Keyless, Step: stepAdd, Asked: t.Begun(), Back: &Back{With: slices.Clone(with), Keyless: keyless}}
	if s.Move.unused() { // so there is nothing to swap
		s.Move.Step = stepProve
	}
	return s, s.Validate()
}

// mirrored is a State that goes back as the machine sees it: a move whose ends are
// exchanged. [State.restored] is the other way.
func (s State) mirrored() State {
	if s.Move == nil || s.Move.Back == nil {
		return s
	}
	t := *s.Move
	t.Old, t.New, t.Keyless = t.New, t.Back.With, t.Back.Keyless
	configs := map[string][]string{}
	for name, hashes := range s.Plan.Configs {
		configs[name] = slices.Clone(hashes)
		slices.Reverse(configs[name])
	}
	s.Move, s.Plan.Configs = &t, configs
	return s
}

func (s State) restored(there State) State {
	if s.Plan = there.Plan; s.Move != nil {
		s.Move.Old, s.Move.New, s.Move.Keyless = there.Move.Old, there.Move.New, there.Move.Keyless
	}
	return s
}

// mirrored has a Decision speak of the stages as they were planned.
func (d Decision) mirrored(back bool) Decision {
	for i, a := range d.Actions {
		if write, ok := a.(WriteConfig); ok {
			write.Stage = mirrored(write.Stage, back)
			d.Actions[i] = write
		}
	}
	return d
}

func mirrored(s Stage, back bool) Stage {
	if back {
		return Stages[len(Stages)-1-s.index()]
	}
	return s
}

// targets are what --to calls providers.
func targets(names []string) string {
	var all []string
	for _, name := range names {
		to := "kms:" + name
		if kind, _, local := Local(name); local {
			to = kind
		}
		if !slices.Contains(all, to) {
			all = append(all, to)
		}
	}
	return strings.Join(all, ",")
}
