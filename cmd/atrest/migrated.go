package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/reencrypt"
)

func printPlan(w io.Writer, f *reencrypt.Result) error {
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
	return printCut(w, rows, 0, 2, 3, 4, 5)
}

// bare is a form without its key_id.
func bare(f audit.Form) string { return audit.Form{Kind: f.Kind, Name: f.Name}.String() }

// concludePlan is the end of a dry run.
func (m *migrateCommand) concludePlan(f *reencrypt.Result) error {
	err := m.output.write(m.out, f, func(w io.Writer) error {
		if err := printPlan(w, f); err != nil {
			return err
		}
		printBeyond(w, f.Beyond())
		return nil
	})
	switch {
	case err != nil:
		return err
	case len(f.Left) == 0:
		return m.nothing("nothing is to be rewritten", f)
	}
	var objects int64
	for _, r := range f.ToRewrite {
		objects += r.Objects
	}
	return badf("to be rewritten: %s%s", counted(int(objects), "object"), beyond(f.Beyond()))
}

// conclude is the end of a run.
func (m *migrateCommand) conclude(f *reencrypt.Result) error {
	err := m.output.end(m.out, "finished", f, func(w io.Writer) error {
		if err := printRewritten(w, f.Rewritten); err != nil {
			return err
		}
		return printFindings(w, f.Report, f.Left)
	})
	switch {
	case err != nil:
		return err
	case len(f.Left) == 0:
		return m.nothing("nothing is left", f)
	}
	why := ""
	if suspicion := f.Suspicion(); suspicion != "" {
		why = ": " + suspicion
	}
	objects := objectsOf(f.Left)
	return badf("%s left that %s not stored as %s says%s", counted(int(objects), "object"), isOrAre(objects), f.File, why)
}

// nothing says that all is well, as of a revision.
func (m *migrateCommand) nothing(what string, f *reencrypt.Result) error {
	if m.output != "table" {
		return nil
	}
	all := "all"
	if len(f.Resources) > 0 { // of what the file does not name it says nothing
		all = "all of " + strings.Join(f.Resources, ", ")
	}
	under := ""
	for _, provider := range slices.Sorted(maps.Keys(f.KeyIDs)) {
		if f.Has(provider) {
			under += fmt.Sprintf(", under %s %s", printable(provider), f.KeyIDs[provider])
		}
	}
	_, err := fmt.Fprintf(m.out, "%s: %s is stored as %s says%s, as of revision %d\n", what, all, f.File, under, f.Revision)
	return err
}

// beyond counts what rewriting does not help.
func beyond(findings []audit.Finding) string {
	objects := objectsOf(findings)
	if objects == 0 {
		return ""
	}
	return fmt.Sprintf("; and %s that cannot be", counted(int(objects), "object"))
}

// printBeyond prints what rewriting does not help.
func printBeyond(w io.Writer, findings []audit.Finding) {
	if len(findings) > 0 {
		fmt.Fprintln(w, "\nCANNOT BE REWRITTEN")
	}
	for _, finding := range findings {
		fmt.Fprintf(w, "  %s\n", printable(finding.String()))
		printKeys(w, finding)
	}
}

func objectsOf(findings []audit.Finding) int64 {
	var objects int64
	for _, f := range findings {
		objects += f.Objects
	}
	return objects
}

func printRewritten(w io.Writer, all []reencrypt.Rewritten) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	rows := [][]string{{"RESOURCE", "REWRITTEN", "UNCHANGED", "GONE", "FAILED", "CONFLICTS", "TOOK"}}
	for _, r := range all {
		row := []string{r.Resource}
		for _, n := range []int64{r.Counts.Rewritten, r.Unchanged, r.Gone, r.Failed, r.Conflicts} {
			row = append(row, number(n, r.Seen > 0))
		}
		rows = append(rows, append(row, r.Took))
	}
	return printCut(w, rows, 0)
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
