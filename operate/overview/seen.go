package overview

import (
	"time"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Seen is what was seen of a cluster in one look.
type Seen struct {
	// Began and Ended are when the look did, by the clock of the observer. An answer
	// from another time is none.
	Began, Ended time.Time
	// Apiservers are the names of those that were asked, in the order in which they are
	// shown, and Told is what each told, by name.
	Apiservers []string
	Told       map[string]rotation.Instance
	// Unnamed are the apiservers that exist and were not asked, by name, with what they
	// are known by. Untold is why it is not known whether there are any.
	Unnamed map[string]string
	Untold  string
	// Clusters are those that the apiservers are of, by name of the apiserver; one that
	// is not there was not asked.
	Clusters map[string]Cluster
	// SeparateConfigs tells that each apiserver is meant to have a configuration of its
	// own, so that they are not compared.
	SeparateConfigs bool
	// Etcd is what is stored, if somebody looked.
	Etcd *Etcd
}

// Cluster is by which UID an apiserver tells its cluster, empty if it tells none, as one
// that serves no namespaces; or why that is not known.
type Cluster struct{ UID, Problem string }

// Etcd is what was seen of what is stored.
type Etcd struct {
	Place  string        `json:"place"`
	Report *audit.Report `json:"report,omitempty"`
	// Problem is why there is no report, empty if there is one.
	Problem string `json:"problem,omitempty"`
	// Reads are what came of having the apiservers read what they tell too little of.
	Reads []Read `json:"reads,omitempty"`
}

// Read is whether all apiservers read an object, for all of its resource and form. The
// verdict is [Well] if they do, and [NotWell] if one cannot.
type Read struct {
	Key      string `json:"key"`
	Resource string `json:"resource"`
	audit.Form
	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why,omitempty"`
	// Unserved reports whether no API serves it.
	Unserved bool `json:"unserved,omitempty"`
}

// fresh reports whether an answer is of this look.
func (s Seen) fresh(i rotation.Instance) bool {
	return !i.CheckedAt.IsZero() && !i.CheckedAt.Before(s.Began) && !i.CheckedAt.After(s.Ended)
}
