package node

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// Report is how a node is. It holds no key material, no credential and no key_id, but hashes.
// What is not known is absent.
type Report struct {
	// At is when it was made, zero before the first round.
	At time.Time `json:"at,omitzero"`
	// Wanted is the bundle in the folder, Accepted the one that is to be in effect, and InEffect
	// the one whose configuration file is in place.
	Wanted   *Revision `json:"wanted,omitempty"`
	Accepted *Revision `json:"accepted,omitempty"`
	InEffect *Revision `json:"inEffect,omitempty"`
	// Waits are the reasons why that is not all one, and why what is no longer wanted is there.
	Waits []string `json:"waits,omitempty"`
	// Problems are what went wrong when it was last tried.
	Problems []string `json:"problems,omitempty"`
	// InMemory tells whether the credentials are in memory-backed storage.
	InMemory bool           `json:"credentialsInMemory"`
	Plugins  []PluginReport `json:"plugins,omitempty"`
	// Trials are of the plugins that are new in the bundle that is wanted, or was accepted last.
	Trials     []TrialReport     `json:"trials,omitempty"`
	Apiservers []ApiserverReport `json:"apiservers,omitempty"`
}

// Revision is a bundle.
type Revision struct {
	Revision uint64 `json:"revision"`
	Hash     string `json:"hash"`
}

// PluginReport is one instance.
type PluginReport struct {
	KeyID    string `json:"keyID"`
	Instance string `json:"instance"`
	// State is starting, serving, silent, ending or ended, and Linked whether an apiserver that
	// connects now comes to it.
	State  string `json:"state"`
	Linked bool   `json:"linked"`
	Health
	// Restarts are those of the keyID since the node started, and FilesSince is since when the
	// credentials are the present ones. When they expire only the plugin could tell.
	Restarts   int       `json:"restarts"`
	FilesSince time.Time `json:"filesSince,omitzero"`
}

// TrialReport is what the trial of a plugin has found so far.
type TrialReport struct {
	KeyID string `json:"keyID"`
	preflight.Verdict
}

// ApiserverReport is what one apiserver of this node told last.
type ApiserverReport struct {
	Name    string    `json:"name"`
	At      time.Time `json:"at,omitzero"`
	Config  string    `json:"configHash,omitempty"`
	Problem string    `json:"problem,omitempty"`
}

// String is the word for a state.
func (s State) String() string {
	return map[State]string{Starting: "starting", Serving: "serving", Silent: "silent", Ending: "ending", Ended: "ended"}[s]
}

func revisionOf(b *bundle.Bundle) *Revision { return &Revision{b.Revision(), b.Hash()} }

func (n *Node) report(o Observation, d Decision) *Report {
	r := &Report{At: o.Now, Waits: d.Waits, InMemory: inMemory(n.o.Run)}
	if b := n.known.candidate; b != nil {
		r.Wanted = revisionOf(b)
	}
	if len(n.kept.bundles) > 0 {
		r.Accepted = revisionOf(n.kept.bundles[0])
	}
	r.InEffect = n.inEffect()
	for _, what := range slices.Sorted(maps.Keys(n.problems)) {
		r.Problems = append(r.Problems, what+": "+n.problems[what])
	}
	for _, start := range slices.SortedFunc(maps.Keys(n.words), func(a, b Start) int { return cmp.Compare(a.KeyID, b.KeyID) }) {
		r.Problems = append(r.Problems, fmt.Sprintf("plugin of keyID %s ended by itself, and said last: %s", start.KeyID, orNone(n.words[start])))
	}
	for _, p := range o.Plugins {
		if one := n.own[p.Instance]; one != nil {
			r.Plugins = append(r.Plugins, n.pluginReport(p, one))
		}
	}
	r.Trials = n.tried()
	for _, a := range o.Apiservers {
		r.Apiservers = append(r.Apiservers, ApiserverReport{Name: a.Name, At: a.At, Config: a.Config, Problem: a.Problem})
	}
	return r
}

// inEffect is the newest bundle whose file is the one in place.
func (n *Node) inEffect() *Revision {
	file, err := readConfig(n.o.ConfigFile)
	if err != nil || file == nil {
		return nil
	}
	for _, b := range n.kept.bundles {
		if string(b.EncryptionConfig()) == string(file) {
			return revisionOf(b)
		}
	}
	return nil
}

func (n *Node) pluginReport(p Plugin, one *own) PluginReport {
	r := PluginReport{KeyID: p.KeyID, Instance: p.Instance, State: p.State.String(), Linked: p.Linked,
		Health: one.asks.now().Health, Restarts: n.restarts[p.KeyID]}
	r.Message = one.secrets.shown([]byte(r.Message)) // a plugin may say anything
	if info, err := os.Stat(one.Spec.Files()); err == nil {
		r.FilesSince = info.ModTime()
	}
	return r
}
