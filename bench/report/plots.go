package main

import (
	"fmt"
	"math"
	"slices"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/kube-atrest/atrest/bench/chart"
	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/suite"
)

// plot is a picture of the results.
type plot struct {
	file, caption string
	svg, png      []byte
}

// draw makes the plots for which there are figures.
func draw(book *measure.Book, o *options) ([]plot, error) {
	p := pictures{book, o}
	var plots []plot
	for _, d := range []struct {
		file  string
		chart chart.Chart
	}{
		{"throughput", p.throughput()},
		{"scaling", p.scaling()},
		{"memory", p.memory()},
		{"cold-start", p.coldStart()},
	} {
		if d.chart.Body.IsEmpty() {
			continue
		}
		svg, png, err := d.chart.Render()
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", d.file, err)
		}
		plots = append(plots, plot{d.file, d.chart.Title, svg, png})
	}
	return plots, nil
}

type pictures struct {
	book *measure.Book
	o    *options
}

// median is not a number where nothing was measured.
func (p pictures) median(n measure.Name, unit string) float64 {
	s := measure.SpreadOf(p.book.Values(n, unit))
	if s.N == 0 {
		return math.NaN()
	}
	return s.Median
}

// series is a side as it is shown.
type series struct {
	side, label string
	style       chart.Style
}

// line joins the points of a side that were measured; without any it is left out.
func line(s series, at []int, y func(x int) float64) []chart.Line {
	var xys plotter.XYs
	for _, x := range at {
		if v := y(x); !math.IsNaN(v) {
			xys = append(xys, plotter.XY{X: float64(x), Y: v})
		}
	}
	if len(xys) == 0 {
		return nil
	}
	return []chart.Line{{Label: s.label, Style: s.style, XYs: xys}}
}

// panel leaves out what has no lines.
func panel(panels chart.Panels, p chart.Panel) chart.Panels {
	if len(p.Lines) == 0 {
		return panels
	}
	return append(panels, p)
}

func (p pictures) throughput() chart.Chart {
	var panels chart.Panels
	for _, op := range []struct{ name, title string }{{"Write", "Write"}, {"Read", "Read, DEK known"}} {
		var lines []chart.Line
		for _, s := range []series{
			{suite.Cipher, "AES-GCM alone", chart.Floor},
			{suite.AtrestCounter, "atrest, counter", chart.Ours},
			{suite.AtrestSeed, "atrest, seed", chart.OursToo},
			{suite.KubeCounter, "kube-apiserver, DEK", chart.TheirsToo},
			{suite.KubeSeed, "kube-apiserver, seed", chart.Theirs},
			{suite.Tink, "tink KMS envelope", chart.Other},
		} {
			lines = append(lines, line(s, p.o.scale.Sizes, func(size int) float64 {
				return float64(size) * 1e3 / p.median(measure.Name{Case: op.name, Params: suite.Size(size), Side: s.side}, p.o.unit)
			})...)
		}
		panels = panel(panels, chart.Panel{
			Title: op.title, Lines: lines, Converging: true,
			X: chart.Axis{Label: "size of the value", Log: true, Min: float64(p.o.scale.Sizes[0]), Max: float64(slices.Max(p.o.scale.Sizes)), Ticks: sizeTicks(p.o.scale.Sizes)},
			Y: powers(lines, "MB/s"),
		})
	}
	return chart.Chart{
		Title: "Throughput against the size of a value",
		Note:  "KMS v2, one goroutine, metrics on; MB/s on a logarithmic scale, higher is better",
		Body:  panels,
	}
}

func sizeTicks(sizes []int) []gonum.Tick {
	var ticks []gonum.Tick
	for _, s := range sizes {
		ticks = append(ticks, gonum.Tick{Value: float64(s), Label: suite.SizeName(s)})
	}
	return ticks
}

// powers is a logarithmic axis over all lines, with a tick at each power of 10.
func powers(lines []chart.Line, label string) chart.Axis {
	low, high := math.Inf(1), math.Inf(-1)
	for _, l := range lines {
		for _, xy := range l.XYs {
			low, high = min(low, xy.Y), max(high, xy.Y)
		}
	}
	a := chart.Axis{Label: label, Log: true, Min: low / 1.3, Max: high * 1.3}
	for e := math.Ceil(math.Log10(a.Min)); math.Pow(10, e) <= a.Max; e++ {
		a.Ticks = append(a.Ticks, gonum.Tick{Value: math.Pow(10, e), Label: thousands(math.Pow(10, e))})
	}
	return a
}

// linear is an axis from 0 over all lines, with some five ticks.
func linear(lines []chart.Line, label string, unit float64) chart.Axis {
	high := 0.0
	for _, l := range lines {
		for _, xy := range l.XYs {
			high = max(high, xy.Y)
		}
	}
	a := chart.Axis{Label: label, Max: high * 1.06}
	for _, v := range round(high / unit) {
		a.Ticks = append(a.Ticks, gonum.Tick{Value: v * unit, Label: fmt.Sprintf("%.4g", v)})
	}
	return a
}

// round gives round figures from 0 to high, some five of them.
func round(high float64) []float64 {
	if high <= 0 {
		return []float64{0}
	}
	step := math.Pow(10, math.Floor(math.Log10(high/4)))
	for _, f := range []float64{5, 2} {
		if high/(step*f) >= 4 {
			step *= f
			break
		}
	}
	var all []float64
	for v := 0.0; v <= high*1.05; v += step {
		all = append(all, v)
	}
	return all
}

func thousands(x float64) string {
	if x < 1 {
		return fmt.Sprintf("%g", x)
	}
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}
