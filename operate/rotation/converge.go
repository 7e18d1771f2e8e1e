package rotation

import (
	"maps"
	"slices"
	"time"
)

// view is an observation through the eyes of one who expects certain instances.
type view struct {
	expected []string
	usable   map[string]Instance
	found    map[Reason]*Waiting
}

// look sorts out the instances whose answer can be gone by.
func look(expected []string, maxAge time.Duration, o Observation, now time.Time) *view {
	v := &view{expected: slices.Sorted(slices.Values(expected)), usable: map[string]Instance{}, found: map[Reason]*Waiting{}}
	for _, name := range v.expected {
		i := o.Instances[name]
		switch age := now.Sub(i.CheckedAt); {
		case i.CheckedAt.IsZero():
			v.note(missing, name, i.Problem)
		case age > maxAge || -age > maxAge:
			v.note(stale, name, i.Problem)
		default:
			v.usable[name] = i
		}
	}
	return v
}

// note records that something about an instance is waited for.
func (v *view) note(r Reason, instance, detail string) {
	w := v.found[r]
	if w == nil {
		w = &Waiting{Reason: r}
		v.found[r] = w
	}
	if !slices.Contains(w.Instances, instance) {
		w.Instances = append(w.Instances, instance)
	}
	if detail != "" {
		if w.Details == nil {
			w.Details = map[string]string{}
		}
		w.Details[instance] = detail
	}
}

// agree is the key_id that all expected instances have from healthy plugins, or
// empty.
func (v *view) agree(providers []string) string {
	for _, name := range v.expected {
		i, usable := v.usable[name]
		if !usable {
			continue
		}
		for _, lack := range i.Lacks(providers) {
			switch {
			case !lack.Told:
				v.note(missing, name, "tells nothing of provider "+lack.Provider)
			case !lack.Healthy:
				v.note(unhealthy, name, lack.Problem)
			default:
				v.note(unhealthy, name, "knows no key_id of provider "+lack.Provider)
			}
		}
	}
	by := Holders(v.usable, providers)
	if len(by) > 1 {
		for _, names := range by {
			for _, name := range names {
				v.note(divergent, name, "")
			}
		}
		v.found[divergent].KeyIDs = by
	}
	if len(by) != 1 || v.found[missing] != nil || v.found[stale] != nil || v.found[unhealthy] != nil {
		return ""
	}
	return slices.Collect(maps.Keys(by))[0]
}

// converged is the key_id that all write under, or empty: every expected instance
// answered lately, has it from a healthy plugin, and made its latest write with each
// provider under it. The last is what kube-apiserver's Status poll cannot tell: an
// apiserver goes on under the old key for minutes after the plugin names a new one.
// A write before since does not count.
func (v *view) converged(providers []string, since time.Time) string {
	keyID := v.agree(providers)
	if keyID != "" {
		v.proven(providers, keyID, since)
	}
	if len(v.found) > 0 {
		return ""
	}
	return keyID
}

// proven looks for instances that were not seen writing under keyID.
func (v *view) proven(providers []string, keyID string, since time.Time) {
	for _, name := range v.expected {
		for _, provider := range providers {
			p := v.usable[name].Providers[provider]
			if p.WroteKeyID != keyID || p.WroteAt.Before(since) {
				v.note(unproven, name, "")
			}
		}
	}
}

// strays reports whether an instance has another key_id, or made its latest write
// under another.
func (v *view) strays(providers []string, keyID string) bool {
	return slices.ContainsFunc(v.keyIDs(providers), func(has string) bool { return has != "" && has != keyID })
}

// order is that of the reasons that concern instances.
var order = []Reason{missing, stale, foreignConfig, otherConfig, unhealthy, divergent, unproven, notRotated}

// waiting is what was found, in the order of the reasons.
func (v *view) waiting() []Waiting {
	var all []Waiting
	for _, r := range order {
		if w := v.found[r]; w != nil {
			slices.Sort(w.Instances)
			all = append(all, *w)
		}
	}
	return all
}

// keyIDs are all that the usable instances have of the providers.
func (v *view) keyIDs(providers []string) []string {
	var all []string
	for _, name := range v.expected {
		for _, provider := range providers {
			p := v.usable[name].Providers[provider]
			all = append(all, p.WroteKeyID, p.KeyID)
		}
	}
	return all
}

// canaries asks for a write through those that were not seen writing, once
// nothing else is in the way of showing it.
func (v *view) canaries(providers []string) []Action {
	w := v.found[unproven]
	if w == nil || len(v.found) > 1 {
		return nil
	}
	var all []Action
	for _, name := range w.Instances {
		all = append(all, Canary{Instance: name, Providers: slices.Clone(providers)})
	}
	return all
}
