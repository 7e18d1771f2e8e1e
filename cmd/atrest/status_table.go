package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/overview"
)

// wide is an output that cuts nothing.
const wide output = "wide"

// printStatus prints the apiservers, what etcd holds if somebody looked, what is not
// as it should be, and the answer in the last line.
func printStatus(w io.Writer, o overview.Overview, whole bool, p paint) error {
	if err := printApiservers(w, o, whole, p); err != nil {
		return err
	}
	if o.Etcd != nil && o.Etcd.Report != nil {
		fmt.Fprintln(w)
		if err := printStored(w, o.Etcd, whole); err != nil {
			return err
		}
	}
	var problems []string
	for _, problem := range o.Problems {
		problems = append(problems, problem.String())
	}
	printReasons(w, "PROBLEMS", problems, p.red)
	printReasons(w, "NOTES", o.Notes, asItIs)
	fmt.Fprintf(w, "\n%s\n", p.answer(o.Verdict)(printable(o.Summary)))
	return nil
}

// printReasons prints what is waited for, or wrong, a line for each.
func printReasons(w io.Writer, title string, reasons []string, in func(string) string) {
	if len(reasons) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, text := range reasons {
		fmt.Fprintf(w, "  %s\n", in(printable(text)))
	}
}

// The columns of the table of apiservers that may be cut.
const (
	columnApiserver = 0
	columnProvider  = 3
	columnHealth    = 6
)

func printApiservers(w io.Writer, o overview.Overview, whole bool, p paint) error {
	rows := [][]string{{"APISERVER", "CONFIG", "AGE", "PROVIDER", "ROLE", "KEY_ID", "HEALTH", "LEFT", "WROTE", "DEKS"}}
	ill := []bool{false}
	for _, a := range o.Apiservers {
		of := apiserverRows(a, o.At, whole)
		rows = append(rows, of...)
		for i := range of {
			ill = append(ill, isIll(o.Problems, a, i))
		}
	}
	if !whole {
		rows = fitted(rows, columnApiserver, columnProvider, columnHealth)
	}
	var table bytes.Buffer
	if err := printTable(&table, rows); err != nil {
		return err
	}
	for i, line := range strings.SplitAfter(strings.TrimSuffix(table.String(), "\n"), "\n") {
		text, in := strings.TrimSuffix(line, "\n"), asItIs
		if ill[i] {
			in = p.red
		}
		fmt.Fprintln(w, in(text))
	}
	return nil
}

// isIll reports whether a problem is about a row of an apiserver: about the provider in
// it, or for the first row about the apiserver, or about a provider that has no row.
func isIll(problems []overview.Problem, a overview.Apiserver, row int) bool {
	return slices.ContainsFunc(problems, func(p overview.Problem) bool {
		if !slices.Contains(p.Apiservers, a.Name) {
			return false
		}
		at := slices.IndexFunc(a.Providers, func(of overview.Provider) bool { return of.Name == p.Provider })
		return max(at, 0) == row
	})
}

// apiserverRows are a row for each provider, or one.
func apiserverRows(a overview.Apiserver, now time.Time, whole bool) [][]string {
	head := []string{a.Name, orDash(hash(a.ConfigHash, whole)), since(a.ConfigSince, now)}
	var rows [][]string
	for _, p := range a.Providers {
		rows = append(rows, append(head, providerCells(a, p, now, whole)...))
		head = []string{"", "", ""}
	}
	if rows == nil {
		health := "-"
		if !a.Seen {
			health = notSeen
		}
		rows = append(rows, append(head, "-", "-", "-", health, "-", "-", "-"))
	}
	return rows
}

const notSeen = "not seen"

func providerCells(a overview.Apiserver, p overview.Provider, now time.Time, whole bool) []string {
	left, deks := "-", "-"
	if p.WritesLeft != nil {
		left = fmt.Sprintf("%.0fs", *p.WritesLeft)
	}
	if p.DEKs != nil {
		deks = fmt.Sprint(*p.DEKs)
	}
	health := string(p.Health)
	switch {
	case !a.Seen:
		health = notSeen
	case p.Health == overview.Health(overview.NotWell) && p.Problem != "" && (whole || len(p.Problem) <= mostOfProblem):
		health = strings.ReplaceAll(p.Problem, "_", " ")
	}
	return []string{p.Name, orDash(string(p.Role)), orDash(hash(p.KeyIDHash, whole)), health, left, since(p.LastWrite, now), deks}
}

// mostOfProblem is how long a problem may be to stand in the table. It is listed in any
// case.
const mostOfProblem = 20

// hash is a hash, or as much of it as tells things apart.
func hash(name string, whole bool) string {
	const digits = 12
	short := strings.TrimPrefix(name, "sha256:")
	if whole || len(short) <= digits {
		return name
	}
	return short[:digits]
}

// since is how long ago something was, as kubectl has it.
func since(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(at)))
}

// printStored prints the resources of which anything is encrypted, or cannot be read,
// and how many others there are.
func printStored(w io.Writer, e *overview.Etcd, whole bool) error {
	printWalked(w, e.Place, e.Report)
	shown, plain, objects := *e.Report, 0, int64(0)
	shown.Resources = nil
	for _, r := range e.Report.Resources {
		if slices.ContainsFunc(r.Forms, func(c audit.Count) bool { return c.Kind != audit.Plaintext }) {
			shown.Resources = append(shown.Resources, r)
			continue
		}
		plain, objects = plain+1, objects+r.Objects
	}
	if len(shown.Resources) > 0 {
		rows := reportRows(&shown)
		if !whole {
			rows = fitted(rows, 0, 3) // the names of the resource and of the provider
		}
		if err := printTable(w, rows); err != nil {
			return err
		}
	}
	if plain > 0 {
		fmt.Fprintf(w, "in plaintext: %s of %s: atrest audit shows them\n", counted(int(objects), "object"), counted(plain, "other resource"))
	}
	return nil
}
