package rotation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Decision is what [Next] says: what ought to be done, and what is waited for.
// Both may be there at once, and both are empty only for a State that
// [State.Validate] refuses.
type Decision struct {
	Actions []Action
	Waiting []Waiting
}

// MarshalJSON writes each action as an object whose one field names what is to
// be done.
func (d Decision) MarshalJSON() ([]byte, error) {
	var out struct {
		Actions []map[string]Action `json:"actions,omitempty"`
		Waiting []Waiting           `json:"waiting,omitempty"`
	}
	for _, a := range d.Actions {
		out.Actions = append(out.Actions, map[string]Action{a.name(): a})
	}
	out.Waiting = d.Waiting
	return json.Marshal(out)
}

// Done reports whether the rotation is finished, and what may go.
func (d Decision) Done() (Done, bool) {
	for _, a := range d.Actions {
		if done, ok := a.(Done); ok {
			return done, true
		}
	}
	return Done{}, false
}

// Action is one of [WriteConfig], [Restart], [Canary], [Migrate], [RunAudit] and [Done].
// It stands for a state of the world: carrying it out twice must change nothing.
type Action interface {
	// String is one line for people.
	String() string
	name() string
}

// WriteConfig asks for the configuration of a stage in the files of the
// instances named. Their apiservers reload them or are restarted; that is
// observed. A file whose hash is not among those of the plan belongs to somebody
// else and must stay as it is.
type WriteConfig struct {
	Stage Stage `json:"stage"`
	// Hashes are what the files have to hash to, by instance.
	Hashes map[string]string `json:"hashes"`
}

// Canary asks for a write through one apiserver with each of the providers, of each
// kind of object that they are for, and for what [Shown] says of it. An apiserver
// that is [Shown] once is asked for again when that is not enough any more.
type Canary struct {
	Instance  string   `json:"instance"`
	Providers []string `json:"providers"`
}

// Migrate asks to rewrite the objects of the resources that are not stored as
// the goal says. What is already under way for the same goal goes on.
type Migrate struct {
	Goal      Goal     `json:"goal"`
	Providers []string `json:"providers"`
	Resources []string `json:"resources"`
}

// Goal names one migration. No two of a rotation are equal, not even when it
// comes back to an earlier key_id.
type Goal struct {
	// KeyID is the hash of the key_id to rewrite to, or the names of what has none, which
	// Keyless says.
	KeyID   string `json:"keyID"`
	Keyless bool   `json:"keyless,omitempty"`
	// Round counts the migrations of a rotation from 1.
	Round int `json:"round"`
}

// RunAudit asks for an [Audit] that starts later than After.
type RunAudit struct {
	After     time.Time `json:"after"`
	Resources []string  `json:"resources"`
}

// Done says that the rotation is finished, which a count has proved that began
// after the last change. All of it is made from that count and from what all
// apiservers tell now.
type Done struct {
	// KeyID is the hash of the key_id that all apiservers write under, and With are
	// the providers that they write with if those have none. Objects are stored so,
	// and Otherwise are stored in some other way.
	KeyID     string   `json:"keyID,omitempty"`
	With      []string `json:"with,omitempty"`
	Objects   int64    `json:"objects"`
	Otherwise int64    `json:"otherwise,omitempty"`
	// Untold are those of the latter of which nobody can tell the key: KMS v1 stores
	// none. While there are any no key_id is named as one that may go.
	Untold int64 `json:"untold,omitempty"`
	// Etcds are the clusters that were counted.
	Etcds []Etcd `json:"etcds,omitempty"`
	// Providers are in no configuration, and nothing is stored with them: their
	// plugins may be stopped.
	Providers []string `json:"providers,omitempty"`
	// Keys are in no configuration either: keys of files, by kind and name.
	Keys []string `json:"keys,omitempty"`
	// KeyIDs are the hashes of the key_ids that nothing in these etcds needs, by
	// whatever provider, and that no apiserver names. They may be disabled once no
	// backup of etcd that is kept needs them.
	KeyIDs []string `json:"keyIDs,omitempty"`
}

func (WriteConfig) name() string { return "writeConfig" }
func (Canary) name() string      { return "canary" }
func (Migrate) name() string     { return "migrate" }
func (RunAudit) name() string    { return "audit" }
func (Done) name() string        { return "done" }

// String is one line for people.
func (a WriteConfig) String() string {
	return fmt.Sprintf("write the configuration %q for %s", a.Stage, list(slices.Sorted(maps.Keys(a.Hashes))))
}

// String is one line for people.
func (a Canary) String() string {
	return fmt.Sprintf("write one object through %s with %s", a.Instance, list(a.Providers))
}

// String is one line for people.
func (a Migrate) String() string {
	if a.Goal.Keyless {
		return fmt.Sprintf("rewrite %s with %s (round %d)", list(a.Resources), a.Goal.KeyID, a.Goal.Round)
	}
	return fmt.Sprintf("rewrite %s under key_id %s of %s (round %d)", list(a.Resources), a.Goal.KeyID, list(a.Providers), a.Goal.Round)
}

// String is one line for people.
func (a RunAudit) String() string { return "count what " + list(a.Resources) + " are stored under" }

// String is one line for people.
func (a Done) String() string {
	s := fmt.Sprintf("finished: %s %s, %d otherwise", objects(a.Objects), a.under(), a.Otherwise)
	if len(a.Etcds) > 0 {
		var etcds []string
		for _, e := range a.Etcds {
			etcds = append(etcds, fmt.Sprintf("%x at revision %d", e.Cluster, e.Revision))
		}
		s += ", counted in etcd cluster " + list(etcds)
	}
	if len(a.Providers) > 0 {
		s += "; the plugin of " + list(a.Providers) + " may be stopped"
	}
	if len(a.Keys) > 0 {
		s += "; key " + list(a.Keys) + " may be destroyed once no backup needs it"
	}
	if len(a.KeyIDs) > 0 {
		s += "; key_id " + list(a.KeyIDs) + " may be disabled once no backup needs it"
	}
	if a.Untold > 0 {
		s += fmt.Sprintf("; no key_id may be disabled, as it is not known which %s stored by KMS v1 need", objects(a.Untold))
	}
	return s
}

// under says what the objects are stored under.
func (a Done) under() string {
	switch {
	case a.KeyID != "":
		return "under key_id " + a.KeyID
	case slices.Contains(a.With, Plain):
		return "as plain text"
	}
	return "with " + list(a.With)
}

func objects(n int64) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}

// Reason is what is waited for, in a word for people: see docs/atrest.md. What to do
// stands in the actions.
type Reason string

// The reasons, in the order in which they are reported.
const (
	// unnamed: an instance exists that the plan does not name.
	unnamed Reason = "unnamed"
	// missing: an instance never answered, or tells nothing of a provider.
	missing Reason = "missing"
	// stale: the latest answer of an instance is too old to go by.
	stale Reason = "stale"
	// ForeignConfig: an instance has a configuration in effect that is none of
	// the plan's. Somebody else changed it, and has to say what is meant.
	ForeignConfig Reason = "foreign_config"
	// otherConfig: an instance has another configuration of the plan in effect.
	otherConfig Reason = "other_config"
	// unhealthy: something is wrong with a plugin of an instance.
	unhealthy Reason = "unhealthy"
	// divergent: the instances have different key_ids.
	divergent Reason = "divergent"
	// sameKey: the new plugin names the key_id of the old one. Nothing would be
	// rotated.
	sameKey Reason = "same_key"
	// unproven: an instance has not been seen writing under the key_id.
	unproven Reason = "unproven"
	// unshown: what an instance writes was not found in etcd under the key_id that it
	// tells of, nor read through all others.
	unshown Reason = "unshown"
	// inRestart: the start of an instance was asked for, and it is not back.
	inRestart Reason = "restarting"
	// notReady: an instance is to be started anew, and another one is not ready.
	notReady Reason = "not_ready"
	// notRotated: all instances still have the key_id that is to be left.
	notRotated Reason = "not_rotated"
	// holding: everything is as it should be, and has to stay so until then.
	holding Reason = "holding"
	// migrating: objects are being rewritten.
	migrating Reason = "migrating"
	// retrying: rewriting failed for a resource and is tried again then.
	retrying Reason = "retrying"
	// auditing: the count of what is stored is not there yet.
	auditing Reason = "auditing"
	// miscounted: the count cannot be one of what these instances write.
	miscounted Reason = "miscounted"
	// left: an audit found objects that are not stored as they should be.
	left Reason = "left"
	// lost: objects need a provider that is in no configuration any more.
	lost Reason = "lost"
)

// Waiting is one thing that is waited for, with names.
type Waiting struct {
	Reason Reason `json:"reason"`
	// Instances are sorted.
	Instances []string `json:"instances,omitempty"`
	// KeyIDs are, where they diverge, the instances by hash of their key_id.
	KeyIDs map[string][]string `json:"keyIDs,omitempty"`
	// Details says more of an instance, or of a resource.
	Details map[string]string `json:"details,omitempty"`
	// Until is when it is over at the earliest, if that is known.
	Until time.Time `json:"until,omitzero"`
	// Objects is how many are left.
	Objects int64 `json:"objects,omitempty"`
	// Remedy is what people have to do, where nothing else helps.
	Remedy string `json:"remedy,omitempty"`
}

// ForPeople reports whether it is over only when people see to it, and not by itself.
func (w Waiting) ForPeople() bool {
	switch w.Reason {
	case unnamed, missing, ForeignConfig, unhealthy, sameKey, lost:
		return true
	}
	return w.Remedy != "" && w.Reason != otherConfig
}

// String is one line for people, without key material.
func (w Waiting) String() string {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(string(w.Reason), "_", " "))
	if w.Objects > 0 {
		b.WriteString(" " + objects(w.Objects))
	}
	if len(w.Instances) > 0 {
		fmt.Fprintf(&b, ": %s", list(w.Instances))
	}
	for _, keyID := range slices.Sorted(maps.Keys(w.KeyIDs)) {
		fmt.Fprintf(&b, "; %s has %s", list(w.KeyIDs[keyID]), keyID)
	}
	for _, name := range slices.Sorted(maps.Keys(w.Details)) {
		fmt.Fprintf(&b, "; %s: %s", name, w.Details[name])
	}
	if !w.Until.IsZero() {
		fmt.Fprintf(&b, "; until %s at the earliest", w.Until.UTC().Format(time.RFC3339))
	}
	if w.Remedy != "" {
		b.WriteString("; " + w.Remedy)
	}
	return b.String()
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.ReplaceAll(strings.Join(names, ", "), Plain, "identity")
}
