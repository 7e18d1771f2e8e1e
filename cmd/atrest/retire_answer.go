package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/rotation/observe"
)

// retirement is the answer.
type retirement struct {
	Provider string `json:"provider,omitempty"`
	KeyID    string `json:"keyIDHash,omitempty"`
	MayGo    bool   `json:"mayGo"`
	// Advice says what exactly may go, if it may.
	Advice  []string `json:"advice,omitempty"`
	Reasons []reason `json:"reasons"`
	// Warnings are about what nobody knows.
	Warnings []string `json:"warnings,omitempty"`
	// Etcd, Snapshots and Apiservers are what was looked at.
	Etcd       looked   `json:"etcd"`
	Snapshots  []looked `json:"snapshots"`
	Apiservers []string `json:"apiservers"`
}

// looked is a place where objects were counted.
type looked struct {
	Place    string `json:"place"`
	Revision int64  `json:"revision"`
	Objects  int64  `json:"objects"`
}

func (l looked) String() string {
	return fmt.Sprintf("%s, revision %d: %s", l.Place, l.Revision, counted(int(l.Objects), "object"))
}

func (s stock) looked() looked { return looked{s.place, s.report.Revision, s.report.Objects} }

func (r *retireCommand) conclude(what retiree, found evidence) error {
	answer := retirement{
		Provider: what.provider, KeyID: what.keyID,
		Reasons: append([]reason{}, found.against(what, r.walk.list)...), Warnings: found.doubts(what),
		Etcd: found.etcd.looked(), Snapshots: []looked{}, Apiservers: slices.Sorted(maps.Keys(found.apiservers[0])),
	}
	for _, backup := range found.snapshots {
		answer.Snapshots = append(answer.Snapshots, backup.looked())
	}
	if answer.MayGo = len(answer.Reasons) == 0; answer.MayGo {
		answer.Advice = what.advice(len(found.snapshots))
	}
	if err := r.output.write(r.out, answer, func(w io.Writer) error { return answer.print(w, what) }); err != nil {
		return err
	}
	for _, text := range answer.Warnings {
		r.warn("%s", printable(text))
	}
	if !answer.MayGo {
		return badf("%s may not go: %s", what, counted(len(answer.Reasons), "reason"))
	}
	return nil
}

// advice is what may be done, and what was not looked at.
func (r retiree) advice(backups int) []string {
	others := fmt.Sprintf("any other backup of etcd that is kept counts too (named by --snapshot: %d)", backups)
	if r.provider != "" {
		return []string{fmt.Sprintf("the plugin of KMS provider %q may be stopped, if no other provider is at its socket", r.provider), others}
	}
	return []string{"the version of the KEK with this key_id may be disabled; disable it for a while before it is destroyed", others}
}

// doubts are what could need it and does not tell.
func (e evidence) doubts(r retiree) []string {
	var texts []string
	if providers, keyIDs := e.names(); !providers[r.provider] && !keyIDs[r.keyID] {
		texts = append(texts, fmt.Sprintf("nothing that was looked at knows %s: see that it is spelled right", r))
	}
	for _, stock := range e.stocks() {
		texts = append(texts, stock.doubts(r)...)
	}
	after := e.apiservers[1]
	for _, apiserver := range slices.Sorted(maps.Keys(after)) {
		for _, name := range slices.Sorted(maps.Keys(after[apiserver].Providers)) {
			if p := after[apiserver].Providers[name]; !p.Healthy && observe.Configured(p) {
				texts = append(texts, fmt.Sprintf("apiserver %s finds provider %q not healthy: %s", apiserver, name, p.Problem))
			}
		}
	}
	return texts
}

func (s stock) doubts(r retiree) []string {
	objects := map[config.Kind]int64{}
	for _, resource := range s.report.Resources {
		for _, c := range resource.Forms {
			objects[c.Kind] += c.Objects
		}
	}
	var texts []string
	if n := objects[config.KMSv1]; n > 0 && r.keyID != "" {
		texts = append(texts, fmt.Sprintf("%s: %s stored with KMS v1, which names no key_id: whether they need this one is not known", s.place, counted(int(n), "object")))
	}
	if n := objects[audit.Unknown] + objects[audit.Undecodable]; n > 0 {
		texts = append(texts, fmt.Sprintf("%s: %s that nothing can open: see them with atrest audit", s.place, counted(int(n), "object")))
	}
	return texts
}

func (a retirement) print(w io.Writer, what retiree) error {
	fmt.Fprintln(w, a.Etcd)
	for _, backup := range a.Snapshots {
		fmt.Fprintln(w, printable(backup.String()))
	}
	fmt.Fprintf(w, "apiservers: %s\n\n", printable(strings.Join(a.Apiservers, ", ")))
	if a.MayGo {
		fmt.Fprintf(w, "yes, %s may go\n", printable(what.String()))
		for _, text := range a.Advice {
			fmt.Fprintf(w, "  %s\n", printable(text))
		}
		return nil
	}
	fmt.Fprintf(w, "no, %s may not go\n", printable(what.String()))
	for _, because := range a.Reasons {
		fmt.Fprintf(w, "  %s: %s\n", printable(because.Where), printable(because.Message))
		for _, d := range because.Resources {
			fmt.Fprintf(w, "    %s: %d\n", printable(d.Resource), d.Objects)
			for _, key := range d.Keys {
				fmt.Fprintf(w, "      %s\n", printable(key))
			}
			if more := d.Objects - int64(len(d.Keys)); more > 0 {
				fmt.Fprintf(w, "      and %d more\n", more)
			}
		}
	}
	return nil
}
