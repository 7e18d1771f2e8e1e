package rotation

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// unsettle has whatever is counted be counted again after what was found: once all
// has ended that an apiserver may have begun which is not known to be well, or was
// started anew. expected is a start of which the file is the reason.
func (s *State) unsettle(v *view, expected bool) {
	for r := range v.found {
		switch {
		case r == notRotated, v.lax.unseen:
		case (r == unproven || r == unshown) && (expected || v.lax.restarted):
		default:
			s.countAfter(s.late(v.now, v.lax))
		}
	}
}

// untold has it counted again when a key_id is told of no more: something may have been
// stored under it that no count has.
func (s *State) untold(v *view) {
	if !v.located {
		return
	}
	var told []string
	for _, i := range v.all {
		for name, p := range i.Providers {
			if s.Move == nil || !slices.Contains(s.Move.Old, name) { // which is to go
				told = append(told, p.KeyID, p.WroteKeyID)
			}
		}
	}
	told = without(unique(told), "")
	if len(without(s.Told, told...)) > 0 {
		s.countAfter(s.late(v.now, v.lax))
	}
	s.Told = told
}

// late is until when a write may last that is under way now.
func (s *State) late(now time.Time, without lax) time.Time {
	if without.late || s.Move != nil && s.Move.unused() {
		return now
	}
	return now.Add(time.Duration(s.Plan.Hold))
}

// countAfter has a count not begin before a moment.
func (s *State) countAfter(at time.Time) {
	if at.After(s.AuditAfter) {
		s.AuditAfter = at
	}
}

// counted is the count that can be gone by, or what is to be done to get one.
func (s *State) counted(o Observation, v *view) (*Audit, Decision) {
	now := v.now
	if limit := now.Add(time.Duration(s.Plan.Hold)); s.AuditAfter.After(limit) { // the clock was set back
		s.AuditAfter = limit
	}
	a := o.Audit
	switch {
	case v.pending(s.Plan):
		s.countAfter(s.late(now, v.lax))
		return nil, Decision{}
	case now.Before(s.AuditAfter):
		return nil, Decision{Waiting: []Waiting{{Reason: holding, Until: s.AuditAfter}}}
	case !s.counts(a, v):
		return nil, s.count()
	}
	fault := v.fault(a)
	if fault == "" {
		return a, Decision{}
	}
	v.forget(a)
	until := a.StartedAt.Add(time.Duration(s.Plan.RetryAfter))
	if !now.Before(until) {
		s.AuditAfter = now
		return nil, s.count()
	}
	return nil, Decision{Waiting: []Waiting{{Reason: miscounted, Details: map[string]string{"count": fault}, Until: until}}}
}

// pending notes the instances that are about to take another file into use, and reports
// whether there is one: what it writes next no count has.
func (v *view) pending(p Plan) (found bool) {
	files := v.files(p, lastIndex)
	for _, name := range v.expected {
		i, reason := v.usable[name], ForeignConfig
		if i.Pending == "" {
			continue
		}
		if _, ours := files[name]; ours {
			reason = otherConfig
		}
		v.note(reason, name, "its file as it is now is not in effect yet: "+i.Pending)
		found = true
	}
	return found
}

// forget has everything shown again that a count does not have: it may be gone since.
func (v *view) forget(a *Audit) {
	for _, name := range v.expected {
		v.show(name, slices.Sorted(maps.Keys(v.shown[name].KeyIDs)), a.StartedAt, false)
	}
}

// counts reports whether a count is one of what is stored now.
func (s *State) counts(a *Audit, v *view) bool {
	return a != nil && !a.StartedAt.After(v.now) && (a.StartedAt.After(s.AuditAfter) || v.lax.after)
}

func (s *State) count() Decision {
	return Decision{Actions: []Action{RunAudit{After: s.AuditAfter, Resources: slices.Clone(s.Plan.Resources)}}, Waiting: []Waiting{{Reason: auditing}}}
}

// fault is why a count cannot be one of what the instances write, or empty.
func (v *view) fault(a *Audit) string {
	if why := a.unsound(); why != "" && !v.lax.sound {
		return why
	}
	for _, name := range v.expected {
		s := v.shown[name]
		for _, cluster := range s.Etcds {
			if !v.lax.etcds && !slices.ContainsFunc(a.Etcds, func(e Etcd) bool { return e.Cluster == cluster }) {
				return fmt.Sprintf("it is not of etcd cluster %x, in which something was found that %s wrote", cluster, name)
			}
		}
		for _, resource := range s.Resources {
			if !v.lax.counted && !slices.ContainsFunc(a.Counts, func(c Count) bool { return c.Resource == resource && c.Objects > 0 && has(s.KeyIDs, c.Provider) }) {
				return fmt.Sprintf("it has none of %s stored with %s, of which one was found that %s wrote", resource, list(slices.Sorted(maps.Keys(s.KeyIDs))), name)
			}
		}
	}
	return ""
}

// unsound is why a count cannot be one of anything, or empty.
func (a *Audit) unsound() string {
	var all int64
	for _, c := range a.Counts {
		if all += c.Objects; c.Objects < 0 || all < 0 || c.Canaries < 0 || c.Canaries > c.Objects {
			return "it has less objects than none"
		}
	}
	if all == 0 {
		return "it has no object at all"
	}
	return ""
}

// with is how many objects are stored with a provider.
func (a *Audit) with(provider string) (n int64) {
	for _, c := range a.Counts {
		if c.Provider == provider {
			n += c.Objects
		}
	}
	return n
}

// left is what a count has of what should not be, without objects if that is
// nothing.
func (a *Audit) left(remains func(Count) bool) Waiting {
	w := Waiting{Reason: left, Details: map[string]string{}}
	for _, c := range a.Counts {
		if c.Objects > 0 && remains(c) {
			w.Objects += c.Objects
			w.Details[c.Resource] += c.under()
		}
	}
	return w
}

func (c Count) under() string {
	switch {
	case c.Provider == "":
		return fmt.Sprintf("[%d under no KMS provider]", c.Objects)
	case c.Provider == Plain:
		return fmt.Sprintf("[%d as plain text]", c.Objects)
	case IsLocal(c.Provider):
		return fmt.Sprintf("[%d under key %s]", c.Objects, c.Provider)
	case c.KeyID == "":
		return fmt.Sprintf("[%d under provider %s, which does not tell its key]", c.Objects, c.Provider)
	}
	return fmt.Sprintf("[%d under provider %s, key_id %s]", c.Objects, c.Provider, c.KeyID)
}

// keyIDs are all that something is stored under with the providers.
func (a *Audit) keyIDs(providers []string) []string {
	var all []string
	if a != nil {
		for _, c := range a.Counts {
			if slices.Contains(providers, c.Provider) {
				all = append(all, c.KeyID)
			}
		}
	}
	return all
}

// done is what a count and what all tell now come to: keyID is written under with the
// providers, if they have one, and former are the key_ids that were. Those gone are
// providers that are in no configuration.
func (v *view) done(a *Audit, o Observation, keyID string, providers, former, gone []string) Done {
	d := Done{KeyID: keyID, Etcds: slices.Clone(a.Etcds)}
	if v.keyless {
		d.KeyID, d.With = "", slices.Clone(providers)
	}
	for _, provider := range gone {
		switch {
		case !IsLocal(provider):
			d.Providers = append(d.Providers, provider)
		case provider != Plain:
			d.Keys = append(d.Keys, provider)
		}
	}
	needed := []string{d.KeyID}
	for _, c := range a.Counts {
		if (v.keyless || c.KeyID == d.KeyID) && slices.Contains(providers, c.Provider) {
			d.Objects += c.Objects - c.Canaries
			needed = append(needed, c.KeyID)
			continue
		}
		d.Otherwise += c.Objects - c.Canaries
		if c.Objects > 0 && c.Provider == Unreadable {
			d.Providers, d.Keys = nil, nil
		}
		if c.Objects > 0 && c.Provider != "" && c.KeyID == "" && !IsLocal(c.Provider) && !v.lax.untold {
			d.Untold += c.Objects
		}
		if c.Objects > 0 && (!v.lax.elsewhere || slices.Contains(providers, c.Provider)) {
			needed = append(needed, c.KeyID)
		}
	}
	for _, i := range o.Instances {
		for name, p := range i.Providers { // a metric outlives its provider
			if !slices.Contains(gone, name) && (!v.lax.elsewhere || slices.Contains(providers, name)) {
				needed = append(needed, p.KeyID, p.WroteKeyID)
			}
		}
	}
	if d.Untold == 0 {
		d.KeyIDs = without(former, needed...)
	}
	return d
}

func has[V any](m map[string]V, k string) bool {
	_, found := m[k]
	return found
}
