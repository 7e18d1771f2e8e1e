package main

import (
	"fmt"
	"io"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/audit"
)

// printWalked prints what was walked, and what it holds elsewhere.
func printWalked(w io.Writer, from string, r *audit.Report) {
	where := r.Prefix
	if r.Beside != "" {
		where += " and " + r.Beside
	}
	fmt.Fprintf(w, "%s, revision %d, %s: %s, %s\n", printable(from), r.Revision, printable(where), counted(int(r.Objects), "object"), size(r.Bytes))
	for _, part := range r.Parts {
		fmt.Fprintf(w, "  %s, revision %d: %s\n", printable(part.Place), part.Revision, counted(int(part.Objects), "key"))
	}
	for _, e := range r.Elsewhere {
		plain := ""
		if e.Plaintext > 0 {
			plain = fmt.Sprintf(", %d in plaintext", e.Plaintext)
		}
		if e.Encrypted+e.Plaintext > 0 {
			fmt.Fprintf(w, "  below %s: %s encrypted%s, of %s\n", printable(e.Prefix), counted(int(e.Encrypted), "object"), plain, counted(int(e.Keys), "key"))
		}
	}
	fmt.Fprintln(w)
}

// printReport prints the counts of an audit.
func printReport(w io.Writer, r *audit.Report) error {
	return printCut(w, reportRows(r), 0, 3, 4) // resource, provider and key_id
}

// reportRows are the counts of an audit, a row for each way in which a resource is
// stored.
func reportRows(r *audit.Report) [][]string {
	head := []string{"RESOURCE", "OBJECTS", "STORED AS", "NAME", "KEY_ID", "DEK", "DEKS", "SIZE"}
	if r.Opened {
		head = append(head, "OPENED")
	}
	rows := [][]string{head}
	for _, resource := range r.Resources {
		name := resource.Name
		for _, c := range resource.Forms {
			row := []string{name, fmt.Sprint(c.Objects), storedAs(c.Form), orDash(c.Name), keyID(c.Form), orDash(string(c.DEKSource)), deks(c), size(c.Bytes)}
			if r.Opened {
				row = append(row, opened(c))
			}
			rows = append(rows, row)
			name = ""
		}
	}
	return rows
}

// storedAs is the kind, and of what is damaged that which it begins as.
func storedAs(f audit.Form) string {
	return audit.Form{Kind: f.Kind, Begins: f.Begins}.String()
}

func keyID(f audit.Form) string {
	if f.KeyID != "" {
		return hashed.Short(f.KeyIDHash) + " " + f.KeyID
	}
	return orDash(hashed.Short(f.KeyIDHash))
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
	case c.NotTried > 0:
		return "not tried"
	case c.NotOpened == 0:
		return "all"
	}
	return fmt.Sprintf("%d of %d", c.Objects-c.NotOpened, c.Objects)
}

// printUnjudged says how many objects were counted, and not held against the configuration.
func printUnjudged(w io.Writer, unjudged int64) {
	if unjudged > 0 {
		fmt.Fprintf(w, "\nnot judged: %s below /openshift.io/ of resources that the configuration does not name: "+
			"hold them against that of the apiserver that stores them\n", counted(int(unjudged), "object"))
	}
}

// printFindings prints what should be otherwise, and the objects. Of what nothing
// opens it says why, one by one.
func printFindings(w io.Writer, r *audit.Report, findings []audit.Finding) error {
	if len(findings) > 0 {
		fmt.Fprintln(w, "\nFINDINGS")
	}
	listed, all := 0, int64(0)
	for _, f := range findings {
		fmt.Fprintf(w, "  %s\n", printable(f.String()))
		if f.Kind != audit.Broken && f.Kind != audit.NotOpened {
			printKeys(w, f)
			continue
		}
		all += f.Objects
		for _, p := range r.Problems {
			if p.Resource == f.Resource && p.Form == f.Form {
				listed++
				fmt.Fprintf(w, "    %s: %s\n", printable(p.Key), printable(p.Why))
			}
		}
	}
	printMore(w, all-int64(listed), "such objects are not listed")
	return nil
}

func printKeys(w io.Writer, f audit.Finding) {
	for _, key := range f.Keys {
		fmt.Fprintf(w, "    %s\n", printable(key))
	}
	printMore(w, f.Objects-int64(len(f.Keys)), "more")
}

func printMore(w io.Writer, more int64, what string) {
	if more > 0 {
		fmt.Fprintf(w, "    and %d %s\n", more, what)
	}
}
