package retire

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kube-atrest/atrest/config"
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
}

// String is one line.
func (l Looked) String() string {
	return fmt.Sprintf("%s, revision %d: %s", l.Place, l.Revision, objects(l.Objects))
}

func (s Stock) looked() Looked { return Looked{s.Place, s.Report.Revision, s.Report.Objects} }

// Answer says whether it may go, and lists most etcd keys of each resource that
// keeps it from going.
func (e Evidence) Answer(what Subject, most int) Answer {
	a := Answer{
		Provider: what.Provider, KeyID: what.KeyID,
		Reasons: append([]Reason{}, e.against(what, most)...), Warnings: e.doubts(what),
		Etcd: e.Etcd.looked(), Snapshots: []Looked{}, Apiservers: slices.Sorted(maps.Keys(e.Apiservers[0])),
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
		texts = append(texts, stock.doubts(r)...)
	}
	after := e.Apiservers[1]
	for _, apiserver := range slices.Sorted(maps.Keys(after)) {
		for _, name := range slices.Sorted(maps.Keys(after[apiserver].Providers)) {
			if p := after[apiserver].Providers[name]; !p.Healthy && !p.Silent {
				texts = append(texts, fmt.Sprintf("apiserver %s finds provider %q not healthy: %s", apiserver, name, p.Problem))
			}
		}
	}
	return texts
}

func (s Stock) doubts(r Subject) []string {
	byKind := map[config.Kind]int64{}
	for _, resource := range s.Report.Resources {
		for _, c := range resource.Forms {
			byKind[c.Kind] += c.Objects
		}
	}
	var texts []string
	if n := byKind[config.KMSv1]; n > 0 && r.KeyID != "" {
		texts = append(texts, fmt.Sprintf("%s: %s stored with KMS v1, which names no key_id: whether they need this one is not known", s.Place, objects(n)))
	}
	if n := byKind[audit.Unknown] + byKind[audit.Undecodable]; n > 0 {
		texts = append(texts, fmt.Sprintf("%s: %s that nothing can open: see them with atrest audit", s.Place, objects(n)))
	}
	return texts
}
