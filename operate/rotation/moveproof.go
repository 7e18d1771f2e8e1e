package rotation

import (
	"slices"
	"time"
)

// proveGone is over when a count finds nothing under the old provider while all
// apiservers were shown to write with the new one since it began.
func (s *State) proveGone(o Observation, v *view, at place) (d Decision, over bool) {
	t := s.Move
	a, w, d := s.countOld(o, v)
	switch {
	case a == nil:
		return d, false
	case w.Objects > 0 && at.highest() == Removed.index(): // who cannot read them is to
		s.back(stepSwap, v.now)
		return d, false
	case w.Objects > 0:
		if d = s.again(o, v, w, t.KeyID, t.New); s.Migration != nil {
			t.Step, t.Since = stepMigrate, v.now
		}
		return d, false
	}
	v.reshow(t.New, a)
	return d, len(v.found) == 0 && (len(v.disk) == 0 || t.unused()) // as a file may be half of one that was begun
}

// countOld counts what is stored with the old provider, while all write with the
// new one.
func (s *State) countOld(o Observation, v *view) (*Audit, Waiting, Decision) {
	t := s.Move
	keyID := v.converged(t.New, time.Time{})
	s.unsettle(v, false)
	if keyID == "" {
		return nil, Waiting{}, Decision{}
	}
	t.KeyID = keyID
	a, d := s.counted(o, v)
	if a == nil {
		return nil, Waiting{}, d
	}
	return a, a.left(func(c Count) bool { return slices.Contains(t.Old, c.Provider) }), d
}

// remove takes the old provider away everywhere, by a count that still holds. The
// next one begins when nothing can be under way any more that was begun with it.
func (s *State) remove(o Observation, v *view, at place) (d Decision, over bool) {
	t := s.Move
	keyID := v.converged(t.New, time.Time{})
	s.unsettle(v, true)
	if !s.counts(o.Audit, v) {
		s.back(stepProve, v.now)
		return d, false
	}
	if d, over = s.push(v, at, Removed); !over || keyID == "" {
		return d, false
	}
	s.countAfter(s.late(v.now, v.lax))
	return d, true
}

// confirm counts once more, what was written while the old provider went. What is
// found then has it come back, unless its plugin may have been stopped by now.
func (s *State) confirm(o Observation, v *view, at place) (d Decision, over bool) {
	t := s.Move
	for _, name := range v.expected {
		v.lags(name, at, Removed)
	}
	a, w, d := s.countOld(o, v)
	switch {
	case v.lax.confirm:
		return Decision{Actions: []Action{v.done(&Audit{}, o, t.KeyID, t.New, t.Former, t.Old)}}, true
	case a == nil:
		return d, false
	case w.Objects > 0 && t.Finished:
		w.Reason, w.Remedy = lost, "put "+list(t.Old)+" back into the configuration as a provider that is read with, its plugin and its key too, and rotate anew"
		return Decision{Waiting: []Waiting{w}}, false
	case w.Objects > 0:
		s.back(stepSwap, v.now)
		return d, false
	}
	if v.reshow(t.New, a); len(v.found)+len(v.disk) > 0 {
		return d, false
	}
	return Decision{Actions: []Action{v.done(a, o, t.KeyID, t.New, t.Former, t.Old)}}, true
}
