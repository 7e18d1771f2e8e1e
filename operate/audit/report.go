package audit

import (
	"fmt"
	"slices"
	"strings"
)

// Report is what a walk counted. It holds etcd keys, names of keys and
// providers, and key_ids, and never a value.
type Report struct {
	// Prefix is where the walk was, and Revision that of etcd for all of it. Of a
	// walk of several paths or etcds it is that of the first.
	Prefix   string `json:"prefix"`
	Revision int64  `json:"revision"`
	// Beside is a second prefix that was walked, as OpenShift has one.
	Beside string `json:"beside,omitempty"`
	// Cluster is the id of the etcd cluster that was walked, 0 if none is known,
	// as of a snapshot. Parts are the etcds, if there were several.
	Cluster uint64 `json:"cluster,omitempty,string"`
	Parts   []Part `json:"parts,omitempty"`
	// UID is that of the namespace kube-system below the layout's prefix, by which clusters
	// are told apart, empty if it was not walked or is not stored in plaintext.
	UID string `json:"-"`
	// Objects and Bytes count the values and their stored length.
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Resources are sorted by name.
	Resources []Resource `json:"resources"`
	// Problems are of kind [Unknown] and [Undecodable], and objects that did not
	// open; the first by etcd key, as many as [Options.MaxListed] of each.
	Problems []Problem `json:"problems,omitempty"`
	// Guessed are resources whose group the etcd key does not tell; see [Layout].
	Guessed []string `json:"guessed,omitempty"`
	// Everywhere reports whether the whole keyspace was walked, and Elsewhere what
	// there is outside the layout's prefix.
	Everywhere bool        `json:"everywhere,omitempty"`
	Elsewhere  []Elsewhere `json:"elsewhere,omitempty"`
	// DEKs are those of [Options.DEKs] that an object is stored under.
	DEKs []string `json:"-"`
	// Opened reports whether each object was to be opened.
	Opened bool `json:"opened"`

	beside int64 // of the objects
}

// Resource counts the objects of one resource.
type Resource struct {
	// Name is as a configuration has it, such as deployments.apps. What comes
	// after the first [MaxRows] pairs of a resource and a form is counted
	// under the name [Rest].
	Name    string `json:"resource"`
	Objects int64  `json:"objects"`
	Bytes   int64  `json:"bytes"`
	// Forms are sorted by kind, name and key_id.
	Forms []Count `json:"forms"`
}

// Count counts the objects of one resource that are stored in one form.
type Count struct {
	Form
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// DEKs is how many different DEKs or seeds there are, for KMS. There may be
	// more if DEKsAtLeast is set: a million in all are told apart.
	DEKs        int64 `json:"deks,omitempty"`
	DEKsAtLeast bool  `json:"deksAtLeast,omitempty"`
	// NotOpened is how many did not open, if they were to be, and NotTried of how many
	// nobody tried it.
	NotOpened int64 `json:"notOpened,omitempty"`
	NotTried  int64 `json:"notTried,omitempty"`
	// Astray tells that they are in an etcd where no apiserver looks for them.
	Astray bool `json:"astray,omitempty"`
	// Beside tells that they are where several apiservers store, each by a configuration of
	// its own, as OpenShift's do below /openshift.io. One that does not name the resource
	// says nothing of them. It is not told of a walk of everything.
	Beside bool `json:"beside,omitempty"`
	// Keys are the first etcd keys in their order, cut at 1 KiB, as many as
	// [Options.MaxListed].
	Keys []string `json:"keys,omitempty"`
}

// Problem is about one object.
type Problem struct {
	// Key is the etcd key, cut at 1 KiB.
	Key      string `json:"key"`
	Resource string `json:"resource"`
	Form
	// Why is one line, without key material.
	Why string `json:"why"`
}

// NotEmpty is an error if nothing at all was found below the prefix, which would
// pass every check. It names what else there is, if that was looked at.
func (r *Report) NotEmpty() error {
	below, others := r.Objects-r.beside, []string{}
	for _, e := range r.Elsewhere {
		below -= e.Encrypted + e.Plaintext
		others = append(others, e.Prefix)
	}
	if below > 0 {
		return nil
	}
	found := ""
	if len(others) > 0 {
		found = fmt.Sprintf(" (it has keys below %s)", strings.Join(others[:min(len(others), maxNamed)], ", "))
	}
	return fmt.Errorf("nothing at all is stored below %s: name the etcd of the apiservers%s, and their --etcd-prefix with --prefix", r.Prefix, found)
}

// addParts adds what was walked of several etcds.
func (r *Report) addParts(parts []Part) {
	for _, part := range parts {
		i := slices.IndexFunc(r.Parts, func(p Part) bool { return p.Place == part.Place })
		if i < 0 {
			r.Parts = append(r.Parts, part)
			continue
		}
		r.Parts[i].Objects += part.Objects
		r.Parts[i].Placed += part.Placed
	}
}

// maxNamed is how many prefixes an error names.
const maxNamed = 8
