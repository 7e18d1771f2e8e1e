package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// rows are the findings as cells; what stands above is not repeated.
func rows(found []finding) [][]string {
	all := [][]string{{"operation", "figure", "measured", "target", "verdict", "beside"}}
	last := ""
	for _, f := range found {
		what := f.what
		if what == last {
			what = ""
		}
		last = f.what
		all = append(all, []string{what, f.figure, f.measured(), f.target, string(f.verdict), f.beside})
	}
	return all
}

// summary counts the verdicts.
func summary(found []finding) string {
	n := map[verdict]int{}
	for _, f := range found {
		n[f.verdict]++
	}
	var parts []string
	for _, v := range []verdict{met, atFloor, notMet, notMeasured} {
		if n[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], v))
		}
	}
	return "Targets: " + strings.Join(parts, ", ") + "."
}

// how says how the figures were taken.
func how(o *options) string {
	return fmt.Sprintf("Values of 1 KiB unless said, metrics on; medians of %d rounds of %s each (fewer and longer ones for goroutines and garbage; some for memory, cold start and reload), ratios of %s within a round.",
		o.plan.Rounds, o.plan.Slice, o.unit)
}

// text writes for a terminal.
type text struct{ io.Writer }

func (t text) write(m machine, o *options, found []finding) error {
	fmt.Fprintln(t)
	m.write(t)
	fmt.Fprintf(t, "\n%s\n\n", how(o))
	table := rows(found)
	widths := make([]int, len(table[0]))
	for _, row := range table {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range table {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		fmt.Fprintln(t, strings.TrimRight(line.String(), " "))
	}
	_, err := fmt.Fprintf(t, "\n%s\n", summary(found))
	return err
}

// markdown writes for a reader of the repository.
type markdown struct{ io.Writer }

func (d markdown) write(m machine, o *options, found []finding, plots []plot) error {
	fmt.Fprintf(d, "# Measured\n\nMade by `go run ./bench/report`; do not edit.\n\n%s\n\n%s\n\n", how(o), summary(found))
	for i, row := range rows(found) {
		fmt.Fprintf(d, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintln(d, strings.Repeat("|---", len(row))+"|")
		}
	}
	fmt.Fprintln(d)
	for _, p := range plots {
		fmt.Fprintf(d, "![%s](%s.svg)\n\n", p.caption, p.file)
	}
	fmt.Fprintf(d, "## The machine\n\n```\n")
	m.write(d)
	_, err := fmt.Fprintf(d, "```\n")
	return err
}
