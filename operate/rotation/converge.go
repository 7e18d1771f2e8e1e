package rotation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// view is an observation through the eyes of one who expects certain instances.
type view struct {
	expected []string
	usable   map[string]Instance
	all      map[string]Instance
	shown    map[string]Shown
	found    map[Reason]*Waiting
	// disk is what was found of the files on disk alone.
	disk map[Reason]*Waiting
	// located is that it was shown of which cluster this is: what is met there is to be
	// remembered.
	located bool
	// keyless is that what is agreed on has no key_id, and unused that it wrote all the
	// time and goes on as it is.
	keyless, unused bool
	// ask has the providers that a write is wanted with, by instance.
	ask map[string][]string
	now time.Time
	lax lax
}

// look sorts out the instances whose answer can be gone by, and those that nobody
// expects.
func look(expected []string, maxAge time.Duration, o Observation, now time.Time, without lax) *view {
	v := &view{expected: slices.Sorted(slices.Values(expected)), usable: map[string]Instance{}, all: o.Instances, shown: o.Shown,
		found: map[Reason]*Waiting{}, ask: map[string][]string{}, now: now, lax: without}
	for name, i := range o.Instances {
		if !slices.Contains(v.expected, name) && !without.unnamed {
			v.note(unnamed, name, i.Problem)
		}
	}
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
		w.Details = put(w.Details, instance, detail)
	}
}

// agree is the key_id that all expected instances have from healthy plugins, or
// empty; of what has none, its names: of that a plugin that is told of has to be healthy.
// What goes on as it is need not be, but where it is started anew for it.
func (v *view) agree(providers []string) string {
	for _, name := range v.expected {
		i, usable := v.usable[name]
		if !usable {
			continue
		}
		v.lack(name, slices.DeleteFunc(i.Lacks(providers), func(l Lack) bool {
			return v.keyless && (l.Healthy || !l.Told) || v.goesOn(i) && i.Providers[l.Provider].KeyID != ""
		}))
	}
	if v.keyless {
		if v.found[missing] != nil || v.found[stale] != nil || v.found[unhealthy] != nil {
			return ""
		}
		return list(providers)
	}
	by := holders(v.usable, providers, func(p Provider) bool { return p.Healthy || v.unused })
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

// goesOn reports whether what an instance writes with goes on as it is.
func (v *view) goesOn(i Instance) bool { return v.unused && !i.Fixed }

// lack notes why the key_ids of an instance do not count.
func (v *view) lack(name string, all []Lack) {
	for _, lack := range all {
		switch {
		case !lack.Told:
			v.note(missing, name, "tells nothing of provider "+lack.Provider)
		case !lack.Healthy:
			v.note(unhealthy, name, strings.TrimSuffix("provider "+lack.Provider+": "+lack.Problem, ": "))
		default:
			v.note(unhealthy, name, "knows no key_id of provider "+lack.Provider)
		}
	}
}

// converged is the key_id that all write under, or empty: every expected instance
// answered lately, has it from a healthy plugin, made its latest write with each
// provider under it, and what it wrote was found so. The writes are what
// kube-apiserver's Status poll cannot tell: an apiserver goes on under the old key
// for minutes after the plugin names a new one. A write before since does not count.
func (v *view) converged(providers []string, since time.Time) string {
	keyID := v.agree(providers)
	if keyID != "" {
		if !v.keyless {
			v.proven(providers, keyID, since)
		}
		for _, name := range v.expected {
			v.show(name, providers, since, v.lax.shown)
		}
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
			p, shown := v.usable[name].Providers[provider], v.shown[name]
			idle := slices.Contains(shown.Already, provider) && !p.WroteAt.After(shown.At)
			if idle || slices.Contains(shown.Nothing, provider) { // nor could it be
				continue
			}
			if p.WroteKeyID != keyID || p.WroteAt.Before(since) {
				v.note(unproven, name, "")
				v.ask[name] = providers
			}
		}
	}
}

// show notes a usable instance of which it was not shown since a moment what it
// writes with the providers, unless it is excused.
func (v *view) show(name string, providers []string, since time.Time, excused bool) {
	i, usable := v.usable[name]
	if !usable || excused {
		return
	}
	if why := v.doubt(v.shown[name], i, providers, since); why != "" {
		v.note(unshown, name, why)
		v.ask[name] = providers
	}
}

// doubt is why what was shown does not show that an instance writes with the
// providers as it says, or empty.
func (v *view) doubt(s Shown, i Instance, providers []string, since time.Time) string {
	switch {
	case s.At.IsZero():
		return "nothing that it wrote was found in etcd yet"
	case v.changed(s) != "" && !v.lax.bound:
		return v.changed(s) + " was started or configured anew since something was found in etcd that it wrote"
	case !s.At.After(since) || s.At.After(v.now):
		return "what it wrote has to be found in etcd once more"
	case len(s.KeyIDs) > 0 && (len(s.Resources) == 0 || len(s.Etcds) == 0):
		return "it is not said of which resource and in which etcd something was found that it wrote"
	}
	for _, provider := range providers {
		keyID, found := s.KeyIDs[provider]
		switch told := i.Providers[provider].KeyID; {
		case slices.Contains(s.Nothing, provider):
		case !found:
			return "nothing that it wrote with provider " + list([]string{provider}) + " was found in etcd"
		case keyID != told:
			return fmt.Sprintf("what it wrote with provider %s was found under key_id %q, and it tells of %q", provider, keyID, told)
		}
	}
	return ""
}

// changed is an instance that is not the one that it was when something was shown, or
// empty.
func (v *view) changed(s Shown) string {
	now := Identities(v.usable)
	for _, name := range v.expected {
		if running, usable := now[name]; usable && s.Identities[name] != running {
			return name
		}
	}
	return ""
}

// reshow notes the instances that were not shown since a count began, or of which
// nothing was, though the count has what could have been, or that do not answer.
func (v *view) reshow(providers []string, a *Audit) {
	for _, name := range v.expected {
		if why := v.usable[name].Problem; why != "" && !v.lax.answered {
			v.note(stale, name, why)
		}
		v.show(name, providers, a.StartedAt, v.lax.since)
		for _, provider := range v.shown[name].Nothing {
			if !v.lax.nothing && slices.Contains(providers, provider) && a.with(provider) > 0 {
				v.note(unshown, name, "objects are stored with provider "+provider+", and none was written through it")
				v.ask[name] = providers
			}
		}
	}
}

// order is that of the reasons that concern instances.
var order = []Reason{unnamed, missing, stale, ForeignConfig, otherConfig, unhealthy, divergent, sameKey, unproven, unshown, notRotated}

// waiting is what was found, in the order of the reasons.
func (v *view) waiting() []Waiting {
	for r, w := range v.disk {
		for _, name := range w.Instances {
			if known := v.found[r]; known == nil || !slices.Contains(known.Instances, name) {
				v.note(r, name, w.Details[name])
			}
		}
	}
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

// canaries asks for a write through those that were not seen writing, or not shown,
// once nothing else is in the way of showing it.
func (v *view) canaries() []Action {
	for r := range v.found {
		if r != unproven && r != unshown {
			return nil
		}
	}
	var all []Action
	for _, name := range slices.Sorted(maps.Keys(v.ask)) {
		all = append(all, Canary{Instance: name, Providers: slices.Clone(v.ask[name])})
	}
	return all
}
