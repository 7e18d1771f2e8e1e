package chart

import (
	"cmp"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// labels writes the name of each line right of its end, and keeps them apart.
type labels struct {
	lines      []Line
	converging bool
}

const (
	labelSize = 9
	labelGap  = vg.Length(1.4 * labelSize)
	labelAway = vg.Length(5)  // from the end of a line
	leader    = vg.Length(14) // the way from there, if labels had to move
)

// label is a name with the end of its line, and where it is written.
type label struct {
	Line
	end   vg.Point
	order vg.Length
	y     vg.Length
}

// Plot is called by the plot, with the canvas of its data.
func (l labels) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	var all []label
	for _, line := range l.lines {
		first, last := line.XYs[0], line.XYs[len(line.XYs)-1]
		one := label{Line: line, end: vg.Point{X: toX(last.X), Y: toY(last.Y)}, order: toY(last.Y)}
		if l.converging {
			one.order = toY(first.Y)
		}
		all = append(all, one)
	}
	moved := spread(all, c.Min.Y, c.Max.Y)
	for _, a := range all {
		x := c.Max.X + labelAway
		if moved {
			c.StrokeLine2(draw.LineStyle{Color: looks[a.Style].Color, Width: vg.Points(0.5)}, a.end.X, a.end.Y, x+leader-2, a.y)
			x += leader
		}
		style := textStyle(labelSize, a.Style == Ours)
		style.Color, style.YAlign = looks[a.Style].Color, draw.YCenter
		c.FillText(style, vg.Point{X: x, Y: a.y}, a.Label)
	}
}

// spread puts the labels in order and apart, within bottom and top, and tells
// whether one of them is away from the end of its line.
func spread(all []label, bottom, top vg.Length) (moved bool) {
	slices.SortStableFunc(all, func(a, b label) int { return cmp.Compare(a.order, b.order) })
	for i := range all {
		all[i].y = max(all[i].end.Y, bottom)
		if i > 0 {
			all[i].y = max(all[i].y, all[i-1].y+labelGap)
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		ceiling := top
		if i < len(all)-1 {
			ceiling = all[i+1].y - labelGap
		}
		all[i].y = min(all[i].y, ceiling)
		if d := all[i].y - all[i].end.Y; d > labelGap/4 || d < -labelGap/4 {
			moved = true
		}
	}
	return moved
}
