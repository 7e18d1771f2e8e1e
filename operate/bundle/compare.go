package bundle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
)

// Effect is what a change of a plugin needs.
type Effect string

// The effects, from the least to the most.
const (
	// NoChange needs nothing.
	NoChange Effect = "no change"
	// InPlace keeps the keyID: the plugin is given the new value, and nothing that is
	// stored has to be stored again.
	InPlace Effect = "in place"
	// Undecided may be either: it depends on which KEK it is, and that was not seen.
	Undecided Effect = "not known"
	// AnotherKeyID needs a plugin of its own beside the former one, and a migration: what
	// is stored cannot be opened with it.
	AnotherKeyID Effect = "another keyID"
)

var effects = []Effect{NoChange, InPlace, Undecided, AnotherKeyID}

// more is the one of two effects that needs more.
func more(a, b Effect) Effect {
	return effects[max(slices.Index(effects, a), slices.Index(effects, b))]
}

// Change is one field of a plugin that differs.
type Change struct {
	// Field is its path in the settings, such as vault.address, or names a part.
	Field string `json:"field"`
	// From and To are the values of a setting, empty for none. Those of a part are not
	// told.
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Effect Effect `json:"effect"`
	// Why is why it has this effect, in one line.
	Why string `json:"why"`
}

// Comparison is what it needs to replace one plugin by another.
type Comparison struct {
	// Effect is that of all changes together, and of the evidence.
	Effect Effect `json:"effect"`
	// Why is why it has this effect, in one line.
	Why     string   `json:"why"`
	Changes []Change `json:"changes,omitempty"`
	// Proven tells that the other was seen to open what the one in use wraps. A node takes no
	// change in place without, whatever the settings say.
	Proven bool `json:"proven"`
}

// TakenInPlace reports whether a node may have the other take the place of the one in use, under
// the same keyID.
func (c Comparison) TakenInPlace() bool {
	return c.Proven && (c.Effect == NoChange || c.Effect == InPlace)
}

// Compare says what it needs to replace a plugin by another under the same keyID. What
// was seen of their KEKs decides where the settings alone do not, and above all of them:
// one path may have stood for two keys, and two addresses may lead to one.
func Compare(from, to *Plugin, seen Evidence) Comparison {
	kek, why := seen.verdict()
	c := Comparison{Effect: NoChange, Why: "nothing is changed", Proven: kek.proves(), Changes: slices.Concat(settingChanges(from, to, kek, why), partChanges(from, to, kek, why))}
	for _, change := range c.Changes {
		if effect := more(c.Effect, change.Effect); effect != c.Effect {
			c.Effect, c.Why = effect, change.Field+": "+change.Why
		}
	}
	if kek == anotherKEK {
		c.Effect, c.Why = AnotherKeyID, why
	}
	return c
}

func settingChanges(from, to *Plugin, kek kekVerdict, why string) []Change {
	was, is := leaves(from.settings), leaves(to.settings)
	if a, b := from.settings.Backend(), to.settings.Backend(); a != b {
		change := Change{Field: "back end", From: string(a), To: string(b)}
		change.Effect, change.Why = effectOf(ofTheKEK, kek, why)
		return []Change{change}
	}
	var changes []Change
	for _, field := range fieldNames(was, is) {
		if was[field] == is[field] {
			continue
		}
		change := Change{Field: field, From: was[field], To: is[field]}
		change.Effect, change.Why = effectOf(rules[field], kek, why)
		changes = append(changes, change)
	}
	return changes
}

// partChanges are those of files, of which the settings tell when another one is named.
func partChanges(from, to *Plugin, kek kekVerdict, why string) []Change {
	var changes []Change
	for _, part := range to.Parts() {
		content, had := from.parts[part]
		if had && !bytes.Equal(content, to.parts[part]) {
			change := Change{Field: part.String(), Effect: InPlace, Why: "credentials and certificates are read again by the plugin that runs"}
			if to.settings.Backend() == BackendCommand {
				change.Effect, change.Why = ofSomebodyElse(kek, why)
			}
			changes = append(changes, change)
		}
	}
	return changes
}

// ofSomebodyElse is what it needs to give a plugin of somebody else's another file: it may be a credential,
// or the configuration that names the KEK.
func ofSomebodyElse(kek kekVerdict, why string) (Effect, string) {
	switch {
	case kek == anotherKEK:
		return AnotherKeyID, why
	case kek.proves():
		return InPlace, "with it the plugin opens what it opened before: " + why
	}
	return Undecided, "what it says to a plugin of somebody else's is not known, it may name another KEK: " + why
}

func fieldNames(was, is map[string]string) []string {
	all := map[string]bool{}
	for name := range was {
		all[name] = true
	}
	for name := range is {
		all[name] = true
	}
	return slices.SortedFunc(maps.Keys(all), cmp.Compare)
}

// leaves are the values of settings by their paths; a list is one value.
func leaves(s *Settings) map[string]string {
	text, _ := json.Marshal(s) // which came from there
	var tree map[string]any
	_ = json.Unmarshal(text, &tree)
	delete(tree, "apiVersion")
	delete(tree, "kind")
	all := map[string]string{}
	addLeaves(all, "", tree)
	return all
}

func addLeaves(all map[string]string, path string, tree map[string]any) {
	for name, value := range tree {
		if path != "" {
			name = path + "." + name
		}
		switch value := value.(type) {
		case map[string]any:
			if len(value) == 0 {
				all[name] = "{}" // a choice that has nothing to set
			}
			addLeaves(all, name, value)
		case string:
			all[name] = value
		default:
			text, _ := json.Marshal(value)
			all[name] = string(text)
		}
	}
}
