package main

import (
	"fmt"
	"math"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/suite"
)

// verdict is what is said of a target.
type verdict string

const (
	met         verdict = "met"
	notMet      verdict = "missed"
	atFloor     verdict = "missed, by the cipher too"
	notMeasured verdict = "not measured"
	noTarget    verdict = "" // shown for comparison
)

// finding is one figure beside its target.
type finding struct {
	what   string // the operation
	figure string // what is said of it
	got    measure.Spread
	form   func(float64) string
	target string
	verdict
	beside string // what to compare with: the floor, or kube-apiserver's own figure
}

// measured is the median and, in brackets, the spread.
func (f finding) measured() string {
	if f.got.N == 0 {
		return "-"
	}
	m := f.form(f.got.Median)
	if f.got.N > 1 && f.form(f.got.Low) != f.form(f.got.High) {
		m += fmt.Sprintf(" (%s … %s)", f.form(f.got.Low), f.form(f.got.High))
	}
	return m
}

// judge says whether the median is good.
func (f finding) judge(good func(float64) bool) finding {
	switch {
	case f.got.N == 0:
		f.verdict = notMeasured
	case good(f.got.Median):
		f.verdict = met
	default:
		f.verdict = notMet
	}
	return f
}

// The forms of figures.

func times(x float64) string {
	switch {
	case math.IsInf(x, 0):
		return "∞"
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
	case a >= 100:
		return fmt.Sprintf("%.0f B", x)
	}
	return fmt.Sprintf("%.2g B", x)
}

// judgement makes findings of a book.
type judgement struct {
	book *measure.Book
	unit string // of time, where processors' time and passing time both make sense
	all  []finding
}

func (j *judgement) add(f ...finding) { j.all = append(j.all, f...) }

// ratio is how many times as long a takes as b.
func (j *judgement) ratio(a, b measure.Name) measure.Spread {
	return measure.Ratio(j.book.Values(a, j.unit), j.book.Values(b, j.unit))
}

// of is the name of the same for another side.
func of(n measure.Name, side string) measure.Name {
	n.Side = side
	return n
}

// faster is how many times faster ours is than theirs, with the floor beside it.
func (j *judgement) faster(what string, ours measure.Name, theirs, floor string, goal float64) finding {
	f := finding{
		what: what, figure: "faster than " + theirs, got: j.ratio(of(ours, theirs), ours), form: times,
		target: "at least " + times(goal),
	}.judge(func(x float64) bool { return x >= goal })
	bare := j.ratio(of(ours, theirs), of(ours, floor))
	if bare.N == 0 {
		return f
	}
	f.beside = fmt.Sprintf("%s alone: %s", floor, times(bare.Median))
	if f.verdict == notMet && bare.Median < goal {
		f.verdict = atFloor
	}
	return f
}

// fasterAsTheyCome is how many times faster ours is than kube-apiserver with the kind of
// key that it comes with. There is no target.
func (j *judgement) fasterAsTheyCome(what string, ours measure.Name) finding {
	return finding{what: what, figure: "faster than " + suite.KubeSeed + ", as it comes", got: j.ratio(of(ours, suite.KubeSeed), ours), form: times}
}

// slower is how many times as long as the floor ours takes.
func (j *judgement) slower(what string, ours measure.Name, floor string, goal float64) finding {
	return finding{
		what: what, figure: "as long as " + floor, got: j.ratio(ours, of(ours, floor)), form: times,
		target: "at most " + times(goal),
	}.judge(func(x float64) bool { return x <= goal })
}

// allocations is how many an operation makes.
func (j *judgement) allocations(what string, ours measure.Name, theirs string, goal float64) finding {
	f := finding{
		what: what, figure: "allocations", got: measure.SpreadOf(j.book.Values(ours, measure.AllocsPerOp)), form: count,
		target: "at most " + count(goal),
	}.judge(func(x float64) bool { return x <= goal })
	return j.besideTheirs(f, of(ours, theirs), measure.AllocsPerOp)
}

// besideTheirs puts the figure of another side beside a finding.
func (j *judgement) besideTheirs(f finding, theirs measure.Name, unit string) finding {
	if s := measure.SpreadOf(j.book.Values(theirs, unit)); s.N > 0 {
		f.beside = fmt.Sprintf("%s: %s", theirs.Side, f.form(s.Median))
	}
	return f
}
