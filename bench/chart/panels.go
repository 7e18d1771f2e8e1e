package chart

import (
	"fmt"

	stdfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Panels are lines over axes, side by side.
type Panels []Panel

// Panel is a set of lines over one pair of axes. Each line has at least one point.
type Panel struct {
	Title string
	X, Y  Axis
	Lines []Line
	// Converging says that the lines meet at their ends; their labels then
	// stand in the order of their beginnings.
	Converging bool
}

// Axis is one axis. A logarithmic one begins above 0.
type Axis struct {
	Label    string
	Log      bool
	Min, Max float64
	Ticks    []plot.Tick
}

// Line is a line and what stands at its end.
type Line struct {
	Label string
	Style Style
	XYs   plotter.XYs
}

const (
	panelWidth  = 5.9 * vg.Inch
	aloneWidth  = 7.6 * vg.Inch
	labelsWidth = 1.5 * vg.Inch // right of each panel, for the labels of its lines
)

// IsEmpty tells that there are no panels.
func (p Panels) IsEmpty() bool { return len(p) == 0 }

func (p Panels) width() vg.Length {
	return max(aloneWidth, vg.Length(len(p))*panelWidth)
}

func (p Panels) draw(dc draw.Canvas) error {
	row := make([]*plot.Plot, len(p))
	for i, panel := range p {
		made, err := panel.plot()
		if err != nil {
			return fmt.Errorf("%s: %w", panel.Title, err)
		}
		row[i] = made
	}
	tiles := draw.Tiles{Cols: len(row), Rows: 1, PadRight: labelsWidth, PadX: labelsWidth}
	for i, canvas := range plot.Align([][]*plot.Plot{row}, tiles, dc)[0] {
		row[i].Draw(canvas)
	}
	return nil
}

const boldWeight = stdfont.WeightBold

func sans(size font.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

func (p Panel) plot() (*plot.Plot, error) {
	made := plot.New()
	made.BackgroundColor = nil
	made.Title.Text = p.Title
	made.Title.TextStyle.Font = sans(11)
	made.Title.TextStyle.Color = ink
	made.Title.Padding = vg.Points(6)
	p.X.apply(&made.X)
	p.Y.apply(&made.Y)

	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = pale
	made.Add(grid)
	for i := range p.Lines {
		l := p.Lines[len(p.Lines)-1-i] // the first ones on top
		drawn, err := plotter.NewLine(l.XYs)
		if err != nil {
			return nil, err
		}
		drawn.LineStyle = looks[l.Style]
		made.Add(drawn)
	}
	made.Add(labels{p.Lines, p.Converging})
	// Adding a line widens the axes to its points; these are those asked for.
	made.X.Min, made.X.Max, made.Y.Min, made.Y.Max = p.X.Min, p.X.Max, p.Y.Min, p.Y.Max
	return made, nil
}

func (a Axis) apply(to *plot.Axis) {
	to.Label.Text = a.Label
	to.Label.TextStyle.Font = sans(9.5)
	to.Label.TextStyle.Color = ink
	to.Label.Padding = vg.Points(3)
	to.Tick.Label.Font = sans(8.5)
	to.Tick.Label.Color = ink
	to.LineStyle.Color, to.Tick.LineStyle.Color = ink, ink
	to.LineStyle.Width, to.Tick.LineStyle.Width = vg.Points(0.6), vg.Points(0.6)
	to.Tick.Length = vg.Points(3)
	to.Tick.Marker = plot.ConstantTicks(a.Ticks)
	to.Padding = 0
	if a.Log {
		to.Scale = plot.LogScale{}
	}
}
