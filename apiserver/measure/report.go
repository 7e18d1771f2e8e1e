package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// report is the table of what was found.
type report struct {
	scale
	found *book
	args  []string // of the command
}

// row is one line of the table.
type row struct {
	what  string
	group string
	unit  string
	// shown makes of a figure what is shown of it.
	shown func(float64) float64
	// figure is that of one side.
	figure func([]float64) float64
	more   bool // is better
	// alone rows have no ratio round by round.
	alone bool
}

func median(v []float64) float64 { return quantile(v, 0.5) }
func high(v []float64) float64   { return quantile(v, 0.99) }
func last(v []float64) float64   { return v[len(v)-1] }

// in gives the unit in which durations or sizes are shown.
func in(unit float64) func(float64) float64 { return func(v float64) float64 { return v / unit } }

func perSecond(ns float64) float64 { return float64(time.Second) / ns }

const mib = 1 << 20

func (r report) rows() []row {
	us, ms, s := in(float64(time.Microsecond)), in(float64(time.Millisecond)), in(float64(time.Second))
	one, many, list, start, memory := createGroup(oneClient), createGroup(manyClients), listGroup(r.scale), startGroup(r.scale), memoryGroup(r.scale)
	return []row{
		{what: "creates a second, 1 client", group: one, unit: nsPerOp, shown: perSecond, figure: median, more: true},
		{what: fmt.Sprintf("creates a second, %d clients", manyClients), group: many, unit: nsPerOp, shown: perSecond, figure: median, more: true},
		{what: "processor time of the apiserver for a create, µs", group: many, unit: cpuPerOp, shown: us, figure: median},
		{what: fmt.Sprintf("LIST of %d Secrets from etcd, p50, ms", r.secrets), group: list, unit: nsPerOp, shown: ms, figure: median},
		{what: "the same, p99, ms", group: list, unit: nsPerOp, shown: ms, figure: high, alone: true},
		{what: "processor time of the apiserver for a LIST, ms", group: list, unit: cpuPerOp, shown: ms, figure: median},
		{what: fmt.Sprintf("start to ready, %d Secrets, %d DEKs, s", r.secrets, r.deks), group: start, unit: nsPerOp, shown: s, figure: median},
		{what: "start to the end of the first LIST, s", group: start, unit: listedNs, shown: s, figure: median},
		{what: "read from etcd in that time, MiB", group: start, unit: etcdBytes, shown: in(mib), figure: median},
		{what: "keys unwrapped by the plugin in that time", group: start, unit: decrypts, shown: in(1), figure: median, alone: true},
		{what: "live heap that each update adds, median of ten parts, bytes", group: memory, unit: heapPerOp, shown: in(1), figure: median, alone: true},
		{what: fmt.Sprintf("live heap after %d updates, MiB", r.writes), group: memory, unit: heapBytes, shown: in(mib), figure: last, alone: true},
		{what: "resident memory then, MiB", group: memory, unit: residentB, shown: in(mib), figure: last, alone: true},
	}
}

const intoReport = `# End to end

Made by %s; do not edit.

A real kube-apiserver with this library (**atrest**), the same kube-apiserver with its own encryption, and with none.
Both that encrypt use KMS v2 as it comes (atrest counts nonces, kube-apiserver derives a key for each value) and the same
key-file plugin; all three use one etcd, a process of its own with fsync on. They take turns. Server, etcd and the
clients that measure share one machine. Secrets hold 1 KiB.

A ratio is that of atrest to the other, of two figures of one round: the median, and in brackets what eight tenths of
the rounds lie between. Where the brackets hold 1, nothing can be seen of a difference, and the table says so.

`

func (r report) write(w io.Writer, m machine) error {
	fmt.Fprintf(w, intoReport, "`"+strings.Join(append([]string{"go run ./apiserver/measure"}, r.args...), " ")+"`")
	fmt.Fprintf(w, "| | better is | atrest | kube-apiserver | none | atrest to kube-apiserver | atrest to none |\n|%s\n", strings.Repeat("---|", 7))
	for _, row := range r.rows() {
		if cells := r.cells(row); cells != nil {
			fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	fmt.Fprintf(w, "\n%s\n\n## The machine\n\n```\n", r.how())
	m.write(w)
	_, err := fmt.Fprintln(w, "```")
	return err
}

// cells are those of a row, nil if it was not measured.
func (r report) cells(row row) []string {
	better := "less"
	if row.more {
		better = "more"
	}
	cells := []string{row.what, better}
	empty := true
	for _, side := range []string{ours, stock, none} {
		values := r.found.values(name{row.group, side}, row.unit)
		if len(values) == 0 {
			cells = append(cells, "–")
			continue
		}
		empty = false
		cells = append(cells, digits(row.shown(row.figure(values))))
	}
	if empty {
		return nil
	}
	return append(cells, r.ratio(row, stock), r.ratio(row, none))
}

// ratio says how the figures of atrest are to those of another side.
func (r report) ratio(row row, other string) string {
	a, b := r.found.values(name{row.group, ours}, row.unit), r.found.values(name{row.group, other}, row.unit)
	if row.alone || len(a) == 0 || len(b) == 0 {
		return "–"
	}
	for _, values := range [][]float64{a, b} {
		for i := range values {
			values[i] = row.shown(values[i])
		}
	}
	s := spreadOf(divide(a, b))
	if s.n == 0 {
		return "–"
	}
	text := fmt.Sprintf("%.2f [%.2f, %.2f]", s.median, s.low, s.high)
	if s.low <= 1 && 1 <= s.high {
		text += ", no difference to be seen"
	}
	return text
}

// digits shows three digits that count, and no fewer than there are before the point.
func digits(v float64) string {
	size := math.Abs(v)
	switch {
	case size >= 100 || size == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// how says how the figures were taken.
func (r report) how() string {
	return fmt.Sprintf(`How:
- Creates: %d rounds of %s for each side and number of clients, the watch cache as it comes.
- LIST: %d of each side, without a resourceVersion, as one answer in protobuf, not compressed. The watch cache of
  Secrets is off (%s), or it would answer. Each side lists what it wrote itself.
- Start: %d of each side, from the start of the process, on Secrets put into etcd beforehand, neighbours under different
  DEKs, %d in all; the plugin takes %s to unwrap one. Ready is %s, asked
  every 50 ms, and the first LIST comes right after it. What is read from etcd is what etcd says it has sent.
- Memory: updates of %d Secrets by as many clients, watch cache of Secrets off: its history of events would be most of
  what is counted. Live heap is what is left after two collections of garbage, before the updates
  and after each tenth of them. This is one run of each server: there are no rounds to take ratios of.`,
		r.rounds, r.slice, r.lists(), "`"+uncached+"`", r.starts(), r.deks, slowAnswer, "`/readyz`", manyClients)
}
