package main

import (
	"fmt"
	"math"
	"runtime"
	"strconv"

	gonum "gonum.org/v1/plot"

	"github.com/kube-atrest/atrest/bench/chart"
	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/suite"
)

func (p pictures) scaling() chart.Chart {
	var panels chart.Panels
	for _, op := range []struct{ param, title string }{{suite.OpWrite, "Write"}, {suite.OpRead, "Read, DEK known"}} {
		var lines []chart.Line
		for _, s := range []series{
			{suite.Cipher, "AES-GCM alone", chart.Floor},
			{suite.AtrestCounter, "atrest, counter", chart.Ours},
			{suite.AtrestSeed, "atrest, seed", chart.OursToo},
			{suite.KubeCounter, "kube-apiserver, DEK", chart.TheirsToo},
			{suite.KubeSeed, "kube-apiserver, seed", chart.Theirs},
			{suite.Tink, "tink KMS envelope", chart.Other},
		} {
			lines = append(lines, line(s, p.o.scale.Goroutines, func(n int) float64 {
				name := measure.Name{Case: "Scaling", Params: op.param, Side: s.side}
				return 1e9 / p.median(name.With(suite.Goroutines(n)), measure.NsPerOp)
			})...)
		}
		var ticks []gonum.Tick
		for _, n := range p.o.scale.Goroutines {
			ticks = append(ticks, gonum.Tick{Value: float64(n), Label: strconv.Itoa(n)})
		}
		panels = panel(panels, chart.Panel{
			Title: op.title, Lines: lines,
			X: chart.Axis{Label: "goroutines", Log: true, Min: ticks[0].Value, Max: ticks[len(ticks)-1].Value, Ticks: ticks},
			Y: linear(lines, "million operations per second", 1e6),
		})
	}
	return chart.Chart{
		Title: "Operations per second by goroutines",
		Note:  fmt.Sprintf("KMS v2, 1 KiB, metrics on, %d processors; higher is better", runtime.GOMAXPROCS(0)),
		Body:  panels,
	}
}

func (p pictures) memory() chart.Chart {
	var at []int
	for i := range suite.Checkpoints + 1 {
		at = append(at, p.o.scale.Writes/suite.Checkpoints*i)
	}
	var lines []chart.Line
	for _, s := range []series{
		{suite.AtrestCounter, "atrest, counter", chart.Ours},
		{suite.AtrestSeed, "atrest, seed", chart.OursToo},
		{suite.KubeCounter, "kube-apiserver, DEK", chart.TheirsToo},
		{suite.KubeSeed, "kube-apiserver, seed", chart.Theirs},
	} {
		lines = append(lines, line(s, at, func(n int) float64 {
			return p.median(measure.Name{Case: "LiveWrites", Params: suite.Writes(n), Side: s.side}, suite.LiveBytes)
		})...)
	}
	last := float64(at[len(at)-1])
	var ticks []gonum.Tick
	for _, v := range round(last / 1e6) {
		ticks = append(ticks, gonum.Tick{Value: v * 1e6, Label: fmt.Sprintf("%.4g", v)})
	}
	panels := panel(nil, chart.Panel{
		Lines: lines,
		X:     chart.Axis{Label: "million writes", Max: last, Ticks: ticks},
		Y:     linear(lines, "MiB", 1<<20),
	})
	return chart.Chart{
		Title: "Live memory after writes of one key",
		Note:  "KMS v2, 1 KiB; what a collection of garbage cannot free; lower is better",
		Body:  panels,
	}
}

func (p pictures) coldStart() chart.Chart {
	s := p.o.scale
	var bars chart.Bars
	for _, side := range []series{
		{suite.Cipher, "AES-GCM alone", chart.Floor},
		{suite.AtrestCounter, "atrest", chart.Ours},
		{suite.KubeCounter, "kube-apiserver", chart.Theirs},
		{suite.Tink, "tink KMS envelope", chart.Other},
	} {
		n := measure.Name{Case: "ColdStart", Side: side.side}
		took, read := p.median(n, measure.NsPerOp), p.median(n, suite.ObjectsRead)
		if math.IsNaN(read) {
			continue
		}
		text := duration(took)
		if int(read) < s.Objects {
			text = fmt.Sprintf("broken off: %s read in %s", thousands(read), text)
		}
		bars = append(bars, chart.Bar{Label: side.label, Style: side.style, Value: took, Text: text})
	}
	return chart.Chart{
		Title: "Cold start: from the start to the last object read",
		Note: fmt.Sprintf("%s objects under %d DEKs, read one after another; the plugin answers in %s; shorter is better",
			thousands(float64(s.Objects)), s.DEKs, s.Delay),
		Body: bars,
	}
}

// duration shows three figures.
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
