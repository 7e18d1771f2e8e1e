package bundle

import "github.com/kube-atrest/atrest/config"

// Difference is what replacing one bundle by another changes.
type Difference struct {
	// Added and Removed are plugins, by keyID.
	Added   []KeyID `json:"added,omitempty"`
	Removed []KeyID `json:"removed,omitempty"`
	// Changed are the plugins that both have, and that differ.
	Changed []PluginDifference `json:"changed,omitempty"`
	// Config is what changes of the meaning of the EncryptionConfiguration.
	Config []config.Change `json:"-"`
}

// PluginDifference is the [Comparison] of a keyID's plugin with its former self.
type PluginDifference struct {
	KeyID KeyID `json:"keyID"`
	Comparison
}

// Diff compares two bundles, with what was seen of the KEKs of the keyIDs that both have.
func Diff(from, to *Bundle, seen map[KeyID]Evidence) Difference {
	d := Difference{Config: config.Diff(from.config, to.config)}
	for _, p := range from.plugins {
		other := to.Plugin(p.id)
		if other == nil {
			d.Removed = append(d.Removed, p.id)
			continue
		}
		if c := Compare(p, other, seen[p.id]); c.Effect != NoChange {
			d.Changed = append(d.Changed, PluginDifference{p.id, c})
		}
	}
	for _, p := range to.plugins {
		if from.Plugin(p.id) == nil {
			d.Added = append(d.Added, p.id)
		}
	}
	return d
}

// Effect is the most that any of the plugins needs that both have.
func (d Difference) Effect() Effect {
	effect := NoChange
	for _, p := range d.Changed {
		effect = more(effect, p.Effect)
	}
	return effect
}
