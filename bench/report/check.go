package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/kube-atrest/atrest/bench/suite"
	"github.com/kube-atrest/atrest/internal/measure"
)

// verdict is what is said of a target.
type verdict string

const (
	met         verdict = "met"
	notMet      verdict = "missed"
	atFloor     verdict = "missed, by the cipher too"
	notMeasured verdict = "not measured"
)

// kind is how a figure comes about.
type kind struct {
	says string
	form func(float64) string
	unit string
	// ratio is ours to the other's, or turned round; else the figure is ours alone.
	ratio, turned bool
	more          bool // is better
}

var (
	faster      = kind{"faster than %s", times, measure.NsPerOp, true, true, true}
	slower      = kind{"as long as %s", times, measure.NsPerOp, true, false, false}
	scaling     = kind{"of the scaling of %s", times, suite.Gain, true, false, true}
	allocations = kind{says: "allocations", form: count, unit: measure.AllocsPerOp}
	takes       = kind{says: "takes", form: duration, unit: measure.NsPerOp}
	growth      = kind{says: "growth after the first tenth", form: bytesForm, unit: suite.LiveBytes}
	decrypts    = kind{says: "Decrypt calls", form: count, unit: suite.DecryptCalls}
)

// byCPU judges the time of processors.
func (k kind) byCPU() kind {
	k.unit = measure.CPUNsPerOp
	return k
}

// of is the figure of a side beside another.
func (k kind) of(t *measure.Table, n measure.Name, than string) measure.Spread {
	switch {
	case k.turned:
		return t.Ratio(n.Of(than), n.Side, k.unit)
	case k.ratio:
		return t.Ratio(n, than, k.unit)
	case k.unit == suite.LiveBytes:
		// One round has but one figure at each point.
		tenth := n
		tenth.Params = fmt.Sprintf("writes=%d", t.Last(n.Case, "writes")/suite.Checkpoints)
		end, begin := t.Of(n, k.unit), t.Of(tenth, k.unit)
		return measure.Spread{N: end.N, Low: end.Low - begin.Low, Median: end.Median - begin.Median, High: end.High - begin.High}
	}
	return t.Of(n, k.unit)
}

// shown is the median and, in brackets, the spread.
func (k kind) shown(s measure.Spread) string {
	if s.N == 0 {
		return "-"
	}
	m := k.form(s.Median)
	if low, high := k.form(s.Low), k.form(s.High); s.N > 1 && low != high {
		m += fmt.Sprintf(" (%s … %s)", low, high)
	}
	return m
}

// finding is one figure beside its target, in words.
type finding struct {
	what, figure, measured, cpu, target string
	verdict
	beside string // what to compare with: the floor, or kube-apiserver's own figure
}

// check holds a table against the targets.
func check(t *measure.Table) (all []finding) {
	for _, want := range targets(t) {
		all = append(all, want.finding(t))
	}
	return all
}

func (w target) finding(t *measure.Table) finding {
	got := w.of(t, w.Name, w.than)
	passing := w.kind
	if w.ratio && w.unit == measure.CPUNsPerOp {
		passing.unit = measure.NsPerOp
	}
	f := finding{what: w.what, figure: strings.Replace(w.says, "%s", w.than, 1), measured: passing.shown(passing.of(t, w.Name, w.than))}
	if w.ratio && w.unit != suite.Gain {
		f.cpu = w.shown(w.byCPU().of(t, w.Name, w.than))
	}
	bare := measure.Spread{}
	if w.floor != "" {
		if bare = w.of(t, w.Of(w.floor), w.than); bare.N > 0 {
			f.beside = fmt.Sprintf("%s alone: %s", w.floor, w.form(bare.Median))
		}
	} else if !w.ratio {
		if theirs := w.of(t, w.Of(w.than), ""); theirs.N > 0 {
			f.beside = fmt.Sprintf("%s: %s", w.than, w.form(theirs.Median))
		}
	}
	if w.open {
		return f
	}
	f.target = "at most " + w.form(w.goal)
	if w.more {
		f.target = "at least " + w.form(w.goal)
	}
	switch {
	case got.N == 0:
		f.verdict = notMeasured
	case w.good(got.Median):
		f.verdict = met
	case bare.N > 0 && !w.good(bare.Median):
		f.verdict = atFloor
	default:
		f.verdict = notMet
	}
	return f
}

func (w target) good(x float64) bool { return x == w.goal || (x > w.goal) == w.more }

// The forms of figures.

func times(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0fx", x)
	case x >= 10:
		return fmt.Sprintf("%.1fx", x)
	}
	return fmt.Sprintf("%.2fx", x)
}

func count(x float64) string { return fmt.Sprintf("%.0f", x) }

func bytesForm(x float64) string {
	switch a := math.Abs(x); {
	case a >= 1<<30:
		return fmt.Sprintf("%.2f GiB", x/(1<<30))
	case a >= 1<<20:
		return fmt.Sprintf("%.1f MiB", x/(1<<20))
	case a >= 1<<10:
		return fmt.Sprintf("%.0f KiB", x/(1<<10))
	}
	return fmt.Sprintf("%.0f B", x)
}

// duration shows three digits.
func duration(ns float64) string {
	for _, u := range []struct {
		ns   float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if ns >= u.ns {
			return fmt.Sprintf("%.3g %s", ns/u.ns, u.name)
		}
	}
	return fmt.Sprintf("%.3g ns", ns)
}

func thousands(x float64) string {
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
