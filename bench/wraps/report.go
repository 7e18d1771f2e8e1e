package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/internal/measure"
)

// tell writes the report.
func tell(w io.Writer, t *measure.Table) {
	fmt.Fprint(w, `# Plugins, measured

Made by `+"`go run ./bench/wraps`"+`; do not edit.

How many DEKs are wrapped and unwrapped by a plugin on a unix socket, by so many callers at once over one connection, as
an apiserver has it; and what the plugin costs: the time that it takes beside that of its back end alone, within a round.
A figure is the median of all rounds, and what eight tenths of them lie between. Client, plugin and back end share one
process and its processors. The reference is the same back end behind the server that k8s.io/kms has for plugins, which
checks nothing and bounds nothing: what it misses is what gRPC takes on this machine. Memory is the most that a process
of its own has had that serves the plugin and nothing else (VmHWM, with the code of this command) while it is called by
as many.

`)
	measure.Row(w, "back end", "call", "callers", "a second", "p50", "p99", "as long as alone", "p50", "p99", "processors", "as long as the reference", "B, allocations", "memory", "target", "verdict")
	fmt.Fprintln(w, strings.Repeat("|---", 15)+"|")
	for _, s := range stores() {
		for _, op := range ops {
			for _, callers := range loads {
				row(w, t, s, op, callers)
			}
		}
	}
	fmt.Fprintln(w)
	for _, s := range stores() {
		fmt.Fprintf(w, "- %s: %s.%s\n", s.name, s.about, whyNot(t, s))
	}
	fmt.Fprintf(w, "\n## The machine\n\n```\n%s```\n", t.Head)
}

// leftOutLine is in the head of the figures for a back end that has none.
func leftOutLine(s store, why leftOut) string { return fmt.Sprintf("left out: %s: %s\n", s.name, why) }

// whyNot says why there are no figures of a back end; nothing if there are.
func whyNot(t *measure.Table, s store) string {
	if t.Of(nameOf(s.name, ops[0], loads[0], plugin), measure.NsPerOp).N > 0 {
		return ""
	}
	for line := range strings.Lines(t.Head) {
		if why, ok := strings.CutPrefix(line, "left out: "+s.name+": "); ok {
			return " **Left out**: " + strings.TrimSpace(why) + "."
		}
	}
	return " **Left out** of this run."
}

func row(w io.Writer, t *measure.Table, s store, op string, callers int) {
	n := nameOf(s.name, op, callers, plugin)
	if t.Of(n, measure.NsPerOp).N == 0 {
		return // it was not measured
	}
	second, one := t.Of(n, measure.NsPerOp), func(unit string) string { return duration(t.Of(n, unit).Median) }
	cost := t.Ratio(n, alone, measure.NsPerOp)
	target, verdict := "", ""
	if s.goal > 0 {
		target, verdict = fmt.Sprintf("at most %.1fx", s.goal), judge(s.goal, cost, t.Ratio(n.Of(reference), alone, measure.NsPerOp))
	}
	measure.Row(w, s.name, op, fmt.Sprint(callers), fmt.Sprintf("%.0f", 1e9/second.Median), one(p50), one(p99),
		times(cost), times(t.Ratio(n, alone, p50)), times(t.Ratio(n, alone, p99)), times(t.Ratio(n, alone, measure.CPUNsPerOp)),
		times(t.Ratio(n, reference, measure.NsPerOp)),
		fmt.Sprintf("%.0f, %.0f", t.Of(n, measure.BytesPerOp).Median, t.Of(n, measure.AllocsPerOp).Median), mebibytes(t.Of(n, peak)), target, verdict)
}

// judge says whether a cost is within a goal, and if not whether any plugin on gRPC is.
func judge(goal float64, cost, least measure.Spread) string {
	switch {
	case cost.Median <= goal:
		return "met"
	case least.N > 0 && least.Median > goal:
		return "missed, by the reference too"
	}
	return "missed"
}

func duration(ns float64) string {
	d := time.Duration(ns)
	if d > time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

// mebibytes is empty where nothing was measured.
func mebibytes(s measure.Spread) string {
	if s.N == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f MiB", s.Median/(1<<20))
}

// times is a ratio with its spread.
func times(s measure.Spread) string {
	if s.N == 0 {
		return "-"
	}
	form := func(x float64) string {
		if x >= 10 {
			return fmt.Sprintf("%.0fx", x)
		}
		return fmt.Sprintf("%.2fx", x)
	}
	return fmt.Sprintf("%s (%s … %s)", form(s.Median), form(s.Low), form(s.High))
}
