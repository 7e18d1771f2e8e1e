package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/migrate"
)

// migrated is all that a migration found and did.
type migrated struct {
	File       string `json:"file"`
	ConfigHash string `json:"configHash"`
	// KeyIDs are the hashes that the apiservers agree on, by provider.
	KeyIDs    map[string]string `json:"keyIDs,omitempty"`
	ToRewrite []toRewrite       `json:"toRewrite"`
	Rewritten []rewritten       `json:"rewritten,omitempty"`
	DryRun    bool              `json:"dryRun,omitempty"`
	// Revision is that of etcd at the last look, and Left what is still not as
	// the configuration says.
	Revision int64           `json:"revision"`
	Left     []audit.Finding `json:"left"`
}

// toRewrite is a row of what a migration is about.
type toRewrite struct {
	Resource string `json:"resource"`
	Objects  int64  `json:"objects"`
	// From is how they are stored, and To how they will be.
	From audit.Form `json:"from"`
	To   audit.Form `json:"to"`
}

// rewritten is what was done of a resource.
type rewritten struct {
	Resource string `json:"resource"`
	// Round is 2 for what was left after the first one.
	Round int `json:"round"`
	migrate.Counts
	Took    string `json:"took"`
	Problem string `json:"problem,omitempty"`
}

// plan notes what is to be done.
func (f *migrated) plan(m *migration, report *audit.Report) {
	*f = migrated{File: nameOf(m.migrateCommand.config), ConfigHash: m.config.Hash(), KeyIDs: m.keyIDs, DryRun: m.dryRun,
		Revision: report.Revision, ToRewrite: []toRewrite{}, Left: append([]audit.Finding{}, report.Against(m.config, m.current)...)}
	for _, resource := range report.Resources {
		r := schema.ParseGroupResource(resource.Name)
		needs := audit.NeedsRewrite(m.config, r, m.current)
		for _, stored := range resource.Forms {
			if needs(stored.Form) {
				f.ToRewrite = append(f.ToRewrite, toRewrite{resource.Name, stored.Objects, stored.Form, audit.WrittenWith(m.config, r, m.current)})
			}
		}
	}
}

func (f *migrated) printPlan(w io.Writer) error {
	rows := [][]string{{"RESOURCE", "OBJECTS", "STORED AS", "KEY_ID", "TO BE", "KEY_ID"}}
	last := ""
	for _, r := range f.ToRewrite {
		name := r.Resource
		if name == last {
			name = ""
		}
		last = r.Resource
		rows = append(rows, []string{name, fmt.Sprint(r.Objects), bare(r.From), keyID(r.From), bare(r.To), keyID(r.To)})
	}
	if len(rows) == 1 {
		return nil
	}
	return printTable(w, rows)
}

// bare is a form without its key_id.
func bare(f audit.Form) string { return audit.Form{Kind: f.Kind, Name: f.Name}.String() }

// announce says what is going to be done, where the result is not one document.
// What cannot be rewritten is told of at the end.
func (m *migration) announce() error {
	if m.output != "table" {
		return nil
	}
	return m.found.printPlan(m.out)
}

// concludePlan is the end of a dry run.
func (m *migration) concludePlan() error {
	err := m.output.write(m.out, m.found, func(w io.Writer) error {
		if err := m.found.printPlan(w); err != nil {
			return err
		}
		m.found.printBeyond(w)
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(m.found.Left) == 0:
		return m.nothing("nothing is to be rewritten")
	}
	var objects int64
	for _, r := range m.found.ToRewrite {
		objects += r.Objects
	}
	return badf("to be rewritten: %s%s", counted(int(objects), "object"), m.found.beyond())
}

// conclude is the end of a run.
func (m *migration) conclude(report *audit.Report) error {
	m.found.Left = append([]audit.Finding{}, report.Against(m.config, m.current)...)
	m.found.Revision = report.Revision
	err := m.output.write(m.out, m.found, func(w io.Writer) error {
		if err := m.found.printRewritten(w); err != nil {
			return err
		}
		return printFindings(w, report, m.found.Left)
	})
	switch {
	case err != nil:
		return err
	case len(m.found.Left) == 0:
		return m.nothing("nothing is left")
	}
	var objects int64
	for _, f := range m.found.Left {
		objects += f.Objects
	}
	return badf("%s left that %s not stored as %s says%s", counted(int(objects), "object"), isOrAre(objects), m.found.File, m.found.why())
}

// nothing says that all is well, as of a revision.
func (m *migration) nothing(what string) error {
	if m.output != "table" {
		return nil
	}
	all := "all"
	if len(m.resources) > 0 {
		all = "all of " + strings.Join(m.resources, ", ")
	}
	_, err := fmt.Fprintf(m.out, "%s: %s is stored as %s says, as of revision %d\n", what, all, m.found.File, m.found.Revision)
	return err
}

// beyond counts what rewriting does not help.
func (f *migrated) beyond() string {
	var objects int64
	for _, finding := range f.Left {
		if finding.Kind != audit.InPlaintext && finding.Kind != audit.Outdated {
			objects += finding.Objects
		}
	}
	if objects == 0 {
		return ""
	}
	return fmt.Sprintf("; and %s that cannot be", counted(int(objects), "object"))
}

// printBeyond prints what rewriting does not help.
func (f *migrated) printBeyond(w io.Writer) {
	if f.beyond() != "" {
		fmt.Fprintln(w, "\nCANNOT BE REWRITTEN")
	}
	for _, finding := range f.Left {
		if finding.Kind != audit.InPlaintext && finding.Kind != audit.Outdated {
			fmt.Fprintf(w, "  %s\n", printable(finding.String()))
			printKeys(w, finding)
		}
	}
}

// why says what may be wrong when nothing was rewritten at all.
func (f *migrated) why() string {
	var all migrate.Counts
	for _, r := range f.Rewritten {
		if r.Problem != "" {
			return ""
		}
		all.Seen += r.Seen
		all.Rewritten += r.Rewritten
		all.Unchanged += r.Unchanged
	}
	switch {
	case all.Rewritten > 0 || all.Seen == 0:
		return ""
	case all.Unchanged > 0:
		return ": the apiserver takes them for current: does it write with what the others do, and is this its etcd?"
	}
	return ": the apiserver lists none of them: is this its etcd?"
}

func (f *migrated) printRewritten(w io.Writer) error {
	if len(f.Rewritten) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	rows := [][]string{{"RESOURCE", "REWRITTEN", "UNCHANGED", "GONE", "FAILED", "CONFLICTS", "TOOK"}}
	for _, r := range f.Rewritten {
		row := []string{r.Resource}
		for _, n := range []int64{r.Counts.Rewritten, r.Unchanged, r.Gone, r.Failed, r.Conflicts} {
			row = append(row, number(n, r.Seen > 0))
		}
		rows = append(rows, append(row, r.Took))
	}
	return printTable(w, rows)
}

// number is one, if it is known.
func number(n int64, known bool) string {
	if !known {
		return "-"
	}
	return fmt.Sprint(n)
}

// counted is a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func isOrAre(n int64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// listed is what a map of key_ids says, in one line.
func listed(keyIDs map[string]string) string {
	var all []string
	for _, provider := range slices.Sorted(maps.Keys(keyIDs)) {
		all = append(all, provider+" "+keyIDs[provider])
	}
	return strings.Join(all, ", ")
}
