package measure

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Table is how the figures of a book lie, by what they are of. It is what is kept in the
// repository, and what reports and plots are made from.
type Table struct {
	// Head is said of all of it, in lines: the machine, and how it was measured.
	Head  string
	order []place
	at    map[place]Spread
}

// place is where a spread stands: of figures, or of their ratios to those of another side.
type place struct {
	entry
	to string
}

func (t *Table) add(p place, s Spread) {
	t.order = append(t.order, p)
	t.at[p] = s
}

// Empty reports whether there are no figures.
func (t *Table) Empty() bool { return len(t.order) == 0 }

// Of is how the figures of a name lie.
func (t *Table) Of(n Name, unit string) Spread { return t.at[place{entry{n, unit}, ""}] }

// Ratio is what the figures of a name are to those of another side, within a round.
func (t *Table) Ratio(n Name, to, unit string) Spread {
	if s, ok := t.at[place{entry{n, unit}, to}]; ok {
		return s
	}
	return t.at[place{entry{n.Of(to), unit}, n.Side}].inverse()
}

// Numbers are the values that a parameter has in a case, in their order.
func (t *Table) Numbers(of, param string) []int {
	var all []int
	pattern := regexp.MustCompile(`(?:^|/)` + param + `=(\d+)(?:/|$)`)
	for _, p := range t.order {
		if found := pattern.FindStringSubmatch(p.Params); found != nil && p.Case == of {
			n, _ := strconv.Atoi(found[1]) // of digits
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Last is the highest of [Table.Numbers], 0 if there is none.
func (t *Table) Last(of, param string) int {
	all := t.Numbers(of, param)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1]
}

const columns = "case\tparams\tside\tto\tunit\trounds\tlow tenth\tlow quarter\tmedian\thigh quarter\thigh tenth\n"

// Write writes the table as lines with tabs between the cells, below its head.
func (t *Table) Write(to io.Writer) error {
	w := bufio.NewWriter(to)
	for line := range strings.Lines(t.Head) {
		fmt.Fprintf(w, "# %s\n", strings.TrimRight(line, "\n"))
	}
	fmt.Fprint(w, columns)
	for _, p := range t.order {
		s := t.at[p]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d", p.Case, p.Params, p.Side, p.to, p.unit, s.N)
		for _, x := range []float64{s.Low, s.Lower, s.Median, s.Upper, s.High} {
			fmt.Fprintf(w, "\t%.5g", x) // no machine repeats the fifth digit
		}
		fmt.Fprintln(w)
	}
	return w.Flush() // which has the first error
}

// Read reads what [Table.Write] has written.
func Read(from io.Reader) (*Table, error) {
	t := &Table{at: map[place]Spread{}}
	for lines := bufio.NewScanner(from); lines.Scan(); {
		line := lines.Text()
		if said, ok := strings.CutPrefix(line, "# "); ok {
			t.Head += said + "\n"
			continue
		}
		cells := strings.Split(line, "\t")
		if line+"\n" == columns {
			continue
		}
		if len(cells) != strings.Count(columns, "\t")+1 {
			return nil, fmt.Errorf("%q is no line of a table of figures", line)
		}
		var s Spread
		_, err := fmt.Sscan(strings.Join(cells[5:], " "), &s.N, &s.Low, &s.Lower, &s.Median, &s.Upper, &s.High)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		t.add(place{entry{Name{cells[0], cells[1], cells[2]}, cells[4]}, cells[3]}, s)
	}
	return t, nil
}
