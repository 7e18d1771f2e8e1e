package rotation

import (
	"errors"
	"slices"
	"time"
)

// OnePlugin is the rotation of a plugin whose key_id changes while it runs. No
// configuration, no apiserver and no plugin is touched. It never ends: after
// [Done] it waits for the next change of the key_id.
type OnePlugin struct {
	// Providers are the names of the write provider: one, or several on the same
	// plugin where each resource has its own.
	Providers []string `json:"providers"`
	// From is the hash of a key_id to be left, if it is known: while all
	// apiservers still have it there is nothing to do. Without it the first
	// key_id that all have becomes the target, and if everything is stored under
	// it already that is the end of it.
	From string `json:"from,omitempty"`
	// Candidate is what all apiservers write under while it is not the target.
	Candidate *Candidate `json:"candidate,omitempty"`
	// Target is the hash of the key_id that everything is rewritten to. It
	// stays as it is for as long as a migration lasts.
	Target string `json:"target,omitempty"`
	// Migrated is what the latest migration that came to its end was for.
	Migrated string `json:"migrated,omitempty"`
	// ProvenAt is the beginning of the audit which found nothing that is not
	// under the target; zero if none did.
	ProvenAt time.Time `json:"provenAt,omitzero"`
	// Finished tells that one did since the target became the target.
	Finished bool `json:"finished,omitempty"`
	// Seen are the hashes of all key_ids met so far, the latest 100. Former are
	// those met before the target became the target, without it.
	Seen   []string `json:"seen,omitempty"`
	Former []string `json:"former,omitempty"`
}

// Candidate is a key_id that all apiservers agree on, and since when they do
// without a break.
type Candidate struct {
	KeyID string    `json:"keyID"`
	Since time.Time `json:"since"`
}

// NewOnePlugin begins a rotation of the key_id of providers, away from the
// key_id whose hash is from, or from whatever it is if that is empty.
func NewOnePlugin(p Plan, providers []string, from string) (State, error) {
	s := State{Version: version, Plan: p.withDefaults(), OnePlugin: &OnePlugin{Providers: slices.Clone(providers), From: from}}
	return s, s.Validate()
}

func (p *OnePlugin) validate(m *Migration) error {
	switch {
	case m != nil && m.Goal.KeyID != p.Target:
		return errors.New("the migration is not for the target")
	case m == nil && p.Target != p.Migrated:
		return errors.New("no migration is under way for the target, and none ended")
	case p.Candidate != nil && (p.Candidate.KeyID == "" || p.Candidate.Since.IsZero()):
		return errors.New("a candidate needs both its key_id and its time")
	}
	return namesOf("provider", p.Providers)
}

func (s *State) nextOfOne(o Observation, v *view) Decision {
	p := s.OnePlugin
	v.stages(s.Plan, lastIndex) // a configuration that changes meanwhile changes what is written with
	if w := v.found[ForeignConfig]; w != nil {
		w.Remedy = "put the file back as it was, or begin anew with it in a new folder"
	}
	keyID := v.converged(p.Providers, time.Time{})
	s.unsettle(v, false)
	if keyID != "" && keyID != p.Target { // what it writes a count that is under way may have passed
		s.countAfter(s.late(v.now, v.lax))
	}
	p.meet(v, keyID)
	if v.located {
		p.remember(o, v)
	}
	p.ProvenAt = time.Time{}

	if s.Migration != nil {
		goal := s.Migration.Goal
		d, over := s.migrate(o, p.Providers, keyID != "", v.now)
		if !over {
			d.Waiting = append(d.Waiting, v.waiting()...)
			d.Actions = append(d.Actions, v.canaries()...)
			return d
		}
		p.Migrated = goal.KeyID
	}
	if c := p.Candidate; c != nil && v.now.Sub(c.Since) >= time.Duration(s.Plan.Hold) {
		s.promote(c.KeyID)
		s.AuditAfter = v.now // nothing lasts for longer that was begun before
		d, _ := s.migrate(o, p.Providers, true, v.now)
		return d
	}
	if keyID == "" || keyID != p.Target {
		return s.unsettled(v, keyID)
	}
	return s.settle(o, v)
}

// meet keeps the clock: it runs while all agree on something that is not the
// target, and whatever breaks the agreement stops it. It also runs during a
// migration, so that a change meanwhile need not be held a second time.
func (p *OnePlugin) meet(v *view, keyID string) {
	switch {
	case keyID == "" || keyID == p.Target:
		p.Candidate = nil
	case p.Target == "" && keyID == p.From:
		p.Candidate = nil
		for _, name := range v.expected {
			v.note(notRotated, name, "")
		}
	case p.Candidate == nil || p.Candidate.KeyID != keyID || p.Candidate.Since.After(v.now):
		p.Candidate = &Candidate{KeyID: keyID, Since: v.now}
	}
}

// remember notes the key_ids that are met.
func (p *OnePlugin) remember(o Observation, v *view) {
	p.Seen = remember(p.Seen, p.From)
	p.Seen = remember(p.Seen, v.keyIDs(p.Providers)...)
	p.Seen = remember(p.Seen, o.Audit.keyIDs(p.Providers)...)
}

// promote makes a key_id the target and begins the migration to it. What is
// met for the first time after that is newer, and must not go.
func (s *State) promote(keyID string) {
	p := s.OnePlugin
	p.Former = without(p.Seen, keyID)
	p.Target, p.Candidate, p.Finished = keyID, nil, false
	s.begin(keyID, s.Plan.Resources)
}

// unsettled is what is waited for until all agree on a key_id, and then for how
// long they have to.
func (s *State) unsettled(v *view, keyID string) Decision {
	p := s.OnePlugin
	d := Decision{Waiting: v.waiting(), Actions: v.canaries()}
	if p.Candidate != nil {
		d.Waiting = append(d.Waiting, Waiting{Reason: holding, Until: p.Candidate.Since.Add(time.Duration(s.Plan.Hold)),
			KeyIDs: map[string][]string{keyID: slices.Clone(v.expected)}})
	}
	return d
}

// settle proves what was migrated, while all write under the target, and says when
// everything is at rest.
func (s *State) settle(o Observation, v *view) Decision {
	p := s.OnePlugin
	a, d := s.counted(o, v)
	if a == nil {
		d.Waiting = append(v.waiting(), d.Waiting...)
		d.Actions = append(d.Actions, v.canaries()...)
		return d
	}
	w := a.left(func(c Count) bool {
		if slices.Contains(p.Providers, c.Provider) {
			return c.KeyID != p.Target
		}
		return slices.Contains(s.Plan.Resources, c.Resource)
	})
	if w.Objects > 0 {
		return s.again(o, v, w, p.Target, p.Providers)
	}
	if v.reshow(p.Providers, a); len(v.found) > 0 {
		return Decision{Waiting: v.waiting(), Actions: v.canaries()}
	}
	p.ProvenAt, p.Finished = a.StartedAt, true
	return Decision{Actions: []Action{v.done(a, o, p.Target, p.Providers, p.Former, nil)}}
}
