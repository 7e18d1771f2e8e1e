package main

import (
	"fmt"
	"io"

	"github.com/kube-atrest/atrest/audit"
)

// printReport prints the counts of an audit.
func printReport(w io.Writer, r *audit.Report) error {
	head := []string{"RESOURCE", "OBJECTS", "STORED AS", "NAME", "KEY_ID", "DEK", "DEKS", "SIZE"}
	if r.Opened {
		head = append(head, "OPENED")
	}
	rows := [][]string{head}
	for _, resource := range r.Resources {
		name := resource.Name
		for _, c := range resource.Forms {
			row := []string{name, fmt.Sprint(c.Objects), string(c.Kind), orDash(c.Name), keyID(c.Form), orDash(string(c.DEKSource)), deks(c), size(c.Bytes)}
			if r.Opened {
				row = append(row, opened(c))
			}
			rows = append(rows, row)
			name = ""
		}
	}
	return printTable(w, rows)
}

func keyID(f audit.Form) string {
	if f.KeyID != "" {
		return shortHash(f.KeyIDHash) + " " + f.KeyID
	}
	return orDash(shortHash(f.KeyIDHash))
}

func deks(c audit.Count) string {
	switch {
	case c.DEKs == 0:
		return "-"
	case c.DEKsAtLeast:
		return fmt.Sprintf("%d or more", c.DEKs)
	}
	return fmt.Sprint(c.DEKs)
}

func opened(c audit.Count) string {
	switch {
	case c.Kind == audit.Unknown || c.Kind == audit.Undecodable:
		return "none"
	case c.NotOpened == 0:
		return "all"
	}
	return fmt.Sprintf("%d of %d", c.Objects-c.NotOpened, c.Objects)
}

// printFindings prints what should be otherwise, and the objects.
func printFindings(w io.Writer, r *audit.Report, findings []audit.Finding) error {
	if len(findings) > 0 {
		fmt.Fprintln(w, "\nFINDINGS")
	}
	for _, f := range findings {
		fmt.Fprintf(w, "  %s\n", printable(f.String()))
		if f.Kind == audit.Broken || f.Kind == audit.NotOpened {
			continue // the problems have its keys
		}
		for _, key := range f.Keys {
			fmt.Fprintf(w, "    %s\n", printable(key))
		}
		printMore(w, "    ", f.Objects-int64(len(f.Keys)))
	}
	if len(r.Problems) > 0 {
		fmt.Fprintln(w, "\nPROBLEMS")
	}
	for _, p := range r.Problems {
		fmt.Fprintf(w, "  %s: %s\n", printable(p.Key), printable(p.Why))
	}
	printMore(w, "  ", problems(r)-int64(len(r.Problems)))
	return nil
}

func printMore(w io.Writer, indent string, more int64) {
	if more > 0 {
		fmt.Fprintf(w, "%sand %d more\n", indent, more)
	}
}

// problems is how many there are, listed or not.
func problems(r *audit.Report) int64 {
	n := int64(0)
	for _, f := range r.Broken() {
		n += f.Objects
	}
	return n
}
