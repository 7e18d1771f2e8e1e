package retire

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kube-atrest/atrest/operate/audit"
)

// Answer is whether it may go.
type Answer struct {
	Provider string `json:"provider,omitempty"`
	KeyID    string `json:"keyIDHash,omitempty"`
	MayGo    bool   `json:"mayGo"`
	// Advice says what exactly may go, if it may.
	Advice  []string `json:"advice,omitempty"`
	Reasons []Reason `json:"reasons"`
	// Warnings are about what nobody knows.
	Warnings []string `json:"warnings,omitempty"`
	// Etcd, Snapshots and Apiservers are what was Looked at.
	Etcd       Looked   `json:"etcd"`
	Snapshots  []Looked `json:"snapshots"`
	Apiservers []string `json:"apiservers"`
}

// Looked is a place where objects were counted.
type Looked struct {
	Place    string `json:"place"`
	Revision int64  `json:"revision"`
	Objects  int64  `json:"objects"`
	// Cluster is the id of the etcd cluster, 0 for a snapshot. Parts are the
	// etcds, if there were several, and Elsewhere the other prefixes in them.
	Cluster   uint64            `json:"cluster,omitempty,string"`
	Parts     []audit.Part      `json:"parts,omitempty"`
	Elsewhere []audit.Elsewhere `json:"elsewhere,omitempty"`
}

// String is one line.
func (l Looked) String() string {
	text := fmt.Sprintf("%s, revision %d: %s", l.Place, l.Revision, objects(l.Objects))
	for _, e := range l.Elsewhere {
		if e.Encrypted > 0 {
			text += fmt.Sprintf(", %d of them below %s", e.Encrypted, e.Prefix)
		}
	}
	return text
}

func (s Stock) looked() Looked {
	r := s.Report
	return Looked{s.Place, r.Revision, r.Objects, r.Cluster, r.Parts, r.Elsewhere}
}

// Answer says whether it may go, and lists most etcd keys of each resource that
// keeps it from going.
func (e Evidence) Answer(what Subject, most int) Answer {
	a := Answer{
		Provider: what.Provider, KeyID: what.KeyID,
		Reasons: append([]Reason{}, e.against(what, most)...), Warnings: e.doubts(what),
		Etcd: e.Etcd.looked(), Snapshots: []Looked{}, Apiservers: e.apiservers(),
	}
	for _, backup := range e.Snapshots {
		a.Snapshots = append(a.Snapshots, backup.looked())
	}
	if a.MayGo = len(a.Reasons) == 0; a.MayGo {
		a.Advice = what.advice(len(e.Snapshots))
	}
	return a
}

// objects is how many there are, in words.
func objects(n int64) string {
	if n == 1 {
		return "1 object"
	}
	return fmt.Sprintf("%d objects", n)
}

// advice is what may be done, and what was not looked at.
func (r Subject) advice(backups int) []string {
	others := fmt.Sprintf("any other backup of etcd that is kept counts too (named by --snapshot: %d)", backups)
	if r.Provider != "" {
		return []string{fmt.Sprintf("the plugin of KMS provider %q may be stopped, if no other provider is at its socket", r.Provider), others}
	}
	return []string{"the version of the KEK with this key_id may be disabled; disable it for a while before it is destroyed", others}
}

// doubts are what could need it and does not tell.
func (e Evidence) doubts(r Subject) []string {
	var texts []string
	if providers, keyIDs := e.names(); !providers[r.Provider] && !keyIDs[r.KeyID] {
		texts = append(texts, fmt.Sprintf("nothing that was looked at knows %s: see that it is spelled right", r))
	}
	for _, stock := range e.stocks() {
		texts = append(texts, stock.doubts()...)
	}
	texts = append(append(texts, e.Doubtful...), e.Beside...)
	after := e.Apiservers[1]
	for _, apiserver := range slices.Sorted(maps.Keys(after)) {
		if after[apiserver].Fixed {
			texts = append(texts, fmt.Sprintf("apiserver %s does not follow its file, and nobody saw what its next start has in effect: see that the file is still the one that it was started with", apiserver))
		}
		if untold(after[apiserver]) != "" {
			continue // it is a reason
		}
		for _, name := range slices.Sorted(maps.Keys(after[apiserver].Providers)) {
			if p := after[apiserver].Providers[name]; !p.Healthy && !p.Silent {
				texts = append(texts, fmt.Sprintf("apiserver %s finds provider %q not healthy: %s", apiserver, name, p.Problem))
			}
		}
	}
	return texts
}

// doubts are about what nothing can open and no apiserver encrypted.
func (s Stock) doubts() []string {
	n := int64(0)
	for _, resource := range s.Report.Resources {
		for _, c := range resource.Forms {
			if c.Kind == audit.Undecodable && !c.Begins.IsKMS() && resource.Name != audit.Rest {
				n += c.Objects
			}
		}
	}
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s that nothing can open: see them with atrest audit", s.Place, objects(n))}
}
