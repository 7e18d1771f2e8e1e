package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/internal/measure"
)

// Units of figures beside those of package measure.
const (
	listedNs  = "listed-ns" // from the start to the end of the first LIST
	decrypts  = "decrypts"  // calls to the plugin
	etcdBytes = "etcd-B"    // that etcd has sent
	p99Ns     = "p99-ns"    // that one in a hundred exceeds
	heapPerOp = "heap-B/op" // by which the heap has grown
	heapBytes = "heap-B"    // in the end
	residentB = "resident-B"
)

// report is the table of what was found.
type report struct {
	scale
	found *measure.Table
	args  []string // of the command
}

// row is one line of the table.
type row struct {
	what string
	measure.Name
	unit string
	// each is what a figure is divided by to be shown; 0 shows how many are in a second.
	each float64
	// alone rows have no ratio round by round.
	alone bool
}

func (r report) rows() []row {
	const us, ms, s, mib = float64(time.Microsecond), float64(time.Millisecond), float64(time.Second), 1 << 20
	list, start, memory := listName(r.scale), startName(r.scale), memoryName(r.scale)
	return []row{
		{fmt.Sprintf("LIST of %d Secrets from etcd, p50, ms", r.secrets), list, measure.NsPerOp, ms, false},
		{"the same, p99, ms", list, p99Ns, ms, true},
		{"processor time of the apiserver for a LIST, ms", list, measure.CPUNsPerOp, ms, false},
		{fmt.Sprintf("start to ready, %d Secrets, %d DEKs, s", r.secrets, r.deks), start, measure.NsPerOp, s, false},
		{"start to the end of the first LIST, s", start, listedNs, s, false},
		{"read from etcd in that time, MiB", start, etcdBytes, mib, false},
		{"keys unwrapped by the plugin in that time", start, decrypts, 1, true},
		{fmt.Sprintf("updates a second, %d clients", manyClients), memory, measure.NsPerOp, 0, false},
		{"processor time of the apiserver for an update, µs", memory, measure.CPUNsPerOp, us, false},
		{"live heap that each update adds, median of ten parts, bytes", memory, heapPerOp, 1, true},
		{fmt.Sprintf("live heap after %d updates, MiB", r.writes), memory, heapBytes, mib, true},
		{"resident memory then, MiB", memory, residentB, mib, true},
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

| | better is | atrest | kube-apiserver | none | atrest to kube-apiserver | atrest to none |
|---|---|---|---|---|---|---|
`

// how says how the figures were taken.
const how = `
How:
- LIST: %d of each side, without a resourceVersion, as one answer in protobuf, not compressed. The watch cache of
  Secrets is off (%s), or it would answer. Each side lists what it wrote itself.
- Start: %d of each side, from the start of the process, on Secrets put into etcd beforehand, neighbours under different
  DEKs, %d in all; the plugin takes %s to unwrap one. Ready is %s, asked
  every 50 ms, and the first LIST comes right after it. What is read from etcd is what etcd says it has sent.
- Memory: updates of %d Secrets by as many clients, watch cache of Secrets off: its history of events would be most of
  what is counted. Live heap is what is left after two collections of garbage, before the updates
  and after each tenth of them. This is one run of each server, whose tenths take turns.

## The machine

`

func (r report) write(w io.Writer) {
	fmt.Fprintf(w, intoReport, "`"+strings.Join(append([]string{"go run ./apiserver/measure"}, r.args...), " ")+"`")
	for _, row := range r.rows() {
		better := "less"
		if row.each == 0 {
			better = "more"
		}
		cells, empty := []string{row.what, better}, true
		for _, side := range []string{ours, stock, none} {
			s := r.found.Of(row.Of(side), row.unit)
			cells, empty = append(cells, row.shown(s)), empty && s.N == 0
		}
		if !empty { // else it was not measured
			measure.Row(w, append(cells, r.ratio(row, stock), r.ratio(row, none))...)
		}
	}
	fmt.Fprintf(w, how, r.lists(), "`"+uncached+"`", r.starts(), r.deks, slowAnswer, "`/readyz`", manyClients)
	fmt.Fprintf(w, "```\n%s```\n", r.found.Head)
}

// shown is the median.
func (r row) shown(s measure.Spread) string {
	switch {
	case s.N == 0:
		return "–"
	case r.each == 0:
		return digits(float64(time.Second) / s.Median)
	}
	return digits(s.Median / r.each)
}

// ratio says how the figures of atrest are to those of another side.
func (r report) ratio(row row, other string) string {
	s := r.found.Ratio(row.Of(ours), other, row.unit)
	if row.each == 0 {
		s = r.found.Ratio(row.Of(other), ours, row.unit)
	}
	if row.alone || s.N == 0 {
		return "–"
	}
	text := fmt.Sprintf("%.2f [%.2f, %.2f]", s.Median, s.Low, s.High)
	if s.Low <= 1 && 1 <= s.High {
		text += ", no difference to be seen"
	}
	return text
}

// digits shows three digits that count, and no fewer than there are before the point.
func digits(v float64) string {
	after := 2
	switch size := math.Abs(v); {
	case size >= 100 || size == 0:
		after = 0
	case size >= 10:
		after = 1
	}
	return strconv.FormatFloat(v, 'f', after, 64)
}
