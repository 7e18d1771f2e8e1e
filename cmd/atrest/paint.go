package main

import (
	"bytes"
	"io"
	"os"
	"unicode/utf8"

	"github.com/kube-atrest/atrest/operate/overview"
)

// paint is whether text is coloured.
type paint bool

// painting is for somebody who looks at a terminal, unless NO_COLOR is set, as
// https://no-color.org has it, or it is one without colours.
func painting(w io.Writer) paint {
	return paint(os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w))
}

func (p paint) in(colour, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (p paint) red(text string) string { return p.in("31", text) }

func (p paint) green(text string) string { return p.in("32", text) }

// answer is the colour of one.
func (p paint) answer(v overview.Verdict) func(string) string {
	if v == overview.Well {
		return p.green
	}
	return p.red
}

func asItIs(text string) string { return text }

// clearScreen moves to the upper left, and clears what is below.
const clearScreen = "\x1b[H\x1b[J"

// buffered has a text written at once, so that it does not flicker.
func buffered(to io.Writer, write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	_, err := to.Write(text.Bytes())
	return err
}

// tableWidth is how many columns a table has at most.
const tableWidth = 100

// least is how much of a cell is left of those that are cut.
const least = 8

// fitted cuts the cells of some columns, always in the widest of them, until a table
// of the rows fits.
func fitted(rows [][]string, cut ...int) [][]string {
	widths, total := make([]int, len(rows[0])), -2
	for i := range widths {
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		total += widths[i] + 2
	}
	for ; total > tableWidth; total-- {
		widest := cut[0]
		for _, i := range cut {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= least {
			break
		}
		widths[widest]--
	}
	for _, row := range rows {
		for _, i := range cut {
			row[i] = middle(row[i], widths[i])
		}
	}
	return rows
}

// printCut prints rows for somebody who looks at them with some columns cut, so that they
// fit a terminal, and whole to where a script reads them.
func printCut(w io.Writer, rows [][]string, cut ...int) error {
	if isTerminal(w) {
		rows = fitted(rows, cut...)
	}
	return printTable(w, rows)
}

// middle leaves out the middle of what is longer than n.
func middle(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	head := (n - 1) / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(n-1-head):])
}
