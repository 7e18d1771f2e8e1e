package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/lost"
)

// printLost prints what is lost, of each resource the first ones, and what is not known.
func printLost(w io.Writer, a lost.Answer, most int) error {
	restore, again := a.Objects[:a.Restore], a.Objects[a.Restore:]
	if err := toBeRestored.print(w, restore, most); err != nil {
		return err
	}
	printHints(w, restore)
	if err := madeAgain.print(w, again, most); err != nil {
		return err
	}
	if err := printUnopened(w, a.Unknown); err != nil {
		return err
	}
	if notes := notesOf(a); len(notes) > 0 {
		fmt.Fprintln(w, "NOTES")
		for _, text := range notes {
			fmt.Fprintf(w, "  %s\n", printable(text))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s\n", summaryOf(a))
	return nil
}

// part is one of what is lost, with its last columns and what stands there.
type part struct {
	title   string
	columns []string
	cells   func(lost.Lost) []string
}

var (
	toBeRestored = part{"TO BE RESTORED", []string{"WHY", "BACKUP"}, func(l lost.Lost) []string { return []string{string(l.Reason), l.Backup} }}
	madeAgain    = part{"MADE AGAIN", []string{"BY"}, func(l lost.Lost) []string { return []string{l.By} }}
)

// print prints the first objects of each resource.
func (p part) print(w io.Writer, objects []lost.Lost, most int) error {
	if len(objects) == 0 {
		return nil
	}
	rows, seen := [][]string{append([]string{"RESOURCE", "NAMESPACE", "NAME", "STORED AS"}, p.columns...)}, map[string]int{}
	for _, l := range objects {
		if seen[l.Resource]++; seen[l.Resource] > most {
			continue
		}
		row := []string{l.Resource, orDash(l.Namespace), l.Name, briefly(l.Form)}
		for _, cell := range p.cells(l) {
			row = append(row, orDash(cell))
		}
		rows = append(rows, row)
	}
	fmt.Fprintf(w, "%s: %s\n\n", p.title, counted(len(objects), "object"))
	if err := printTable(w, fitted(rows, 0, 1, 2, 3, len(rows[0])-1)); err != nil {
		return err
	}
	if more := len(objects) - (len(rows) - 1); more > 0 {
		fmt.Fprintf(w, "and %d more: raise --list, or have -o json\n", more)
	}
	fmt.Fprintln(w)
	return nil
}

// briefly is a form without its key_id.
func briefly(f audit.Form) string {
	return audit.Form{Kind: f.Kind, Name: f.Name, Begins: f.Begins}.String()
}

// printHints says each hint once, with the objects that it is about.
func printHints(w io.Writer, objects []lost.Lost) {
	var hints []string
	about := map[string][]lost.Lost{}
	for _, l := range objects {
		if l.Hint == "" {
			continue
		}
		if about[l.Hint] == nil {
			hints = append(hints, l.Hint)
		}
		about[l.Hint] = append(about[l.Hint], l)
	}
	for _, hint := range hints {
		first := about[hint][0]
		name := first.Title()
		if more := len(about[hint]) - 1; more > 0 {
			name += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintf(w, "  %s:\n", printable(name))
		for _, line := range wrapped(hint, tableWidth-4) {
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
	if len(hints) > 0 {
		fmt.Fprintln(w)
	}
}

// wrapped is a text in lines of at most n bytes, but for longer words.
func wrapped(text string, n int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > n {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// shownKeys are how many objects of a kind are named that cannot be opened now.
const shownKeys = 20

func printUnopened(w io.Writer, unknown []lost.Unknown) error {
	if len(unknown) == 0 {
		return nil
	}
	fmt.Fprint(w, "CANNOT BE OPENED NOW\n\n")
	rows := [][]string{{"RESOURCE", "OBJECTS", "STORED AS", "KEY_ID", "IN"}}
	for _, u := range unknown {
		where := u.Where
		if where == "" {
			where = "the cluster"
		}
		rows = append(rows, []string{u.Resource, fmt.Sprint(u.Objects), briefly(u.Form), keyID(u.Form), where})
	}
	if err := printTable(w, fitted(rows, 0, 2, 4)); err != nil {
		return err
	}
	told := map[string]bool{}
	for _, u := range unknown {
		if !told[u.Form.String()] {
			told[u.Form.String()] = true
			fmt.Fprintf(w, "  %s\n", printable(u.Why))
		}
		for _, key := range u.Keys[:min(len(u.Keys), shownKeys)] {
			fmt.Fprintf(w, "  %s\n", printable(key))
		}
		if more := len(u.Keys) - shownKeys; more > 0 {
			fmt.Fprintf(w, "  and %d more, which -o json names\n", more)
		}
	}
	fmt.Fprintln(w)
	return nil
}

func notesOf(a lost.Answer) []string {
	var notes []string
	for _, m := range a.Misplaced {
		what := fmt.Sprintf("%s: %s stored as %s: ", m.Resource, counted(int(m.Objects), "object"), m.Form)
		if m.Astray != "" {
			notes = append(notes, what+"not looked at in "+m.Astray+": "+audit.DeleteAstray)
			continue
		}
		if m.Taken {
			notes = append(notes, what+fmt.Sprintf("not read by apiservers, but by what is called %q now, as another has their name: read them with atrest decrypt, and write them again", m.As))
			continue
		}
		if m.As != "" {
			notes = append(notes, what+fmt.Sprintf("not read by apiservers, but by what is called %q now: give that its name of then, too", m.As))
			continue
		}
		if m.With == "" {
			notes = append(notes, what+"not read by apiservers without identity among its providers, and no key is needed")
			continue
		}
		notes = append(notes, what+"not read by apiservers, but by the providers of "+m.With+": add them to its own")
	}
	if a.Restore > 0 && a.Backups == 0 {
		notes = append(notes, "what else is made again, and what could be restored, backups tell: name them with --from-snapshot")
	}
	return append(notes, a.Notes...)
}

// summaryOf is the answer in one line.
func summaryOf(a lost.Answer) string {
	text := "Nothing is lost: every object opens."
	if len(a.Misplaced) > 0 {
		text = "Nothing is lost, but apiservers do not read all of it."
	}
	if len(a.Objects) > 0 {
		text = fmt.Sprintf("Lost: %s. Made again: %d. To be restored: %d", counted(len(a.Objects), "object"), a.MadeAgain, a.Restore)
		if a.Backups > 0 {
			text += fmt.Sprintf(", %d of them in backups", a.InBackups)
		}
		text += "."
	}
	if a.Unjudged+a.Aggregated > 0 && len(a.Objects) == 0 && len(a.Misplaced) == 0 {
		text = "Nothing is lost of what was judged."
	}
	if a.Verdict == lost.NotKnown {
		if len(a.Objects) == 0 {
			text = "Nothing is known to be lost."
		}
		text = "Unknown: not all opens now. " + text
	}
	return text
}
