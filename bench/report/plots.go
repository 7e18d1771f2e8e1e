package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/bench/suite"
	"github.com/kube-atrest/atrest/internal/measure"
)

// series is a side as it is shown. Ours are blue, kube-apiserver's are red, and a floor is
// dashed.
type series struct {
	side, label string
	color       color.RGBA
	width       float64
	dashed      bool
}

var shown = []series{
	{side.Cipher, "AES-GCM alone", color.RGBA{0x20, 0x20, 0x20, 0xff}, 1.4, true},
	{side.AtrestCounter, "atrest, counter", color.RGBA{0x0b, 0x5f, 0xd3, 0xff}, 2.6, false},
	{side.AtrestSeed, "atrest, seed", color.RGBA{0x4d, 0xa3, 0xf0, 0xff}, 2, false},
	{side.AtrestAESGCM, "atrest, aesgcm", color.RGBA{0x45, 0xb0, 0x8c, 0xff}, 1.6, false},
	{side.Kube, "kube-apiserver", color.RGBA{0xc9, 0x3a, 0x0c, 0xff}, 2, false},
	{side.KubeAESGCM, "kube-apiserver, aesgcm", color.RGBA{0xee, 0x9a, 0x5d, 0xff}, 1.6, false},
	// Of an operator's work, as apiserver/measure calls it.
	{"creates", "created", color.RGBA{0x20, 0x20, 0x20, 0xff}, 1.4, true},
	{"migrate", "stored again", color.RGBA{0x0b, 0x5f, 0xd3, 0xff}, 2.6, false},
	{"audit", "audit", color.RGBA{0x0b, 0x5f, 0xd3, 0xff}, 2.6, false},
	{"audit --decrypt", "audit --decrypt", color.RGBA{0x4d, 0xa3, 0xf0, 0xff}, 2, false},
}

// picture is a file with panels side by side.
type picture struct {
	file, title, note string
	panels            []panel
}

// panel is a line for each side over one parameter of a case. Those that were not measured
// are left out.
type panel struct {
	title, of, before string // before the parameter in the name
	param, unit       string
	x, y              string
	figure            func(x, y float64) float64
	log, bars         bool
}

var pictures = []picture{
	{"throughput", "Throughput against the size of a value", "KMS v2 and aesgcm, one goroutine, metrics on; MB/s on a logarithmic scale, higher is better", []panel{
		{"Write", "Write", "", "size", measure.NsPerOp, "bytes", "MB/s", perByte, true, false},
		{"Read, DEK known", "Read", "", "size", measure.NsPerOp, "bytes", "MB/s", perByte, true, false},
	}},
	{"scaling", "Operations per second by goroutines", "KMS v2, 1 KiB, metrics on; higher is better", []panel{
		{"Write", "Scaling", "op=write/", "goroutines", measure.NsPerOp, "goroutines", "million a second", perSecond, false, false},
		{"Read, DEK known", "Scaling", "op=read/", "goroutines", measure.NsPerOp, "goroutines", "million a second", perSecond, false, false},
		{"Write nothing: the nonce, and what is around it", "Nonce", "", "goroutines", measure.NsPerOp, "goroutines", "million a second", perSecond, false, false},
	}},
	{"memory", "Live memory after writes of one key", "KMS v2, 1 KiB; what a collection of garbage cannot free; lower is better", []panel{
		{"", "Memory", "", "writes", suite.LiveBytes, "writes", "MiB", inMiB, false, false},
	}},
	{"cold-start", "Cold start: from the start to the last object read", "read one after another, from a plugin that takes its time; lower is better", []panel{
		{"", "ColdStart", "objects=%d/", "deks", measure.NsPerOp, "", "seconds", func(_, y float64) float64 { return y / 1e9 }, false, true},
	}},
	{"migrate", "Secrets a second", "stored again by migrate, and created; 1 KiB, one kube-apiserver and etcd with fsync; higher is better", []panel{
		{"", "Migrate", "", "workers", measure.NsPerOp, "requests under way", "a second", func(_, ns float64) float64 { return 1e9 / ns }, false, false},
	}},
	{"audit", "An audit of ever more Secrets", "1 KiB each, 200 DEKs, atrest and etcd on one machine", []panel{
		{"Memory at most; lower is better", "Audit", "", "objects", "peak-B", "Secrets", "MiB", inMiB, false, false},
		{"Time; lower is better", "Audit", "", "objects", measure.NsPerOp, "Secrets", "seconds", func(n, ns float64) float64 { return n * ns / 1e9 }, false, false},
	}},
}

func inMiB(_, bytes float64) float64   { return bytes / (1 << 20) }
func perByte(size, ns float64) float64 { return size * 1e3 / ns }
func perSecond(_, ns float64) float64  { return 1e3 / ns }

// drawAll makes the plots for which there are figures, by the names of their files.
func drawAll(t *measure.Table) (map[string][]byte, error) {
	plot.DefaultFont.Variant = "Sans"
	files := map[string][]byte{}
	for _, p := range pictures {
		var row []*plot.Plot
		for _, panel := range p.panels {
			if made, err := panel.plot(t); err != nil {
				return nil, fmt.Errorf("plot %s: %w", p.file, err)
			} else if made != nil {
				row = append(row, made)
			}
		}
		if len(row) == 0 {
			continue
		}
		width, height := vg.Length(max(len(row), 2))*4.2*vg.Inch, 4*vg.Inch
		vector, bitmap := vgsvg.New(width, height), vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(144))}
		p.paint(row, draw.New(vector))
		p.paint(row, draw.New(bitmap))
		var svg, png bytes.Buffer
		if _, err := vector.WriteTo(&svg); err != nil {
			return nil, err
		}
		if _, err := bitmap.WriteTo(&png); err != nil {
			return nil, err
		}
		files[p.file+".svg"], files[p.file+".png"] = svg.Bytes(), png.Bytes()
	}
	return files, nil
}

func (p picture) paint(row []*plot.Plot, dc draw.Canvas) {
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	style := plot.New().Title.TextStyle
	style.XAlign, style.Font.Size = draw.XLeft, 13
	dc.FillText(style, vg.Point{X: 12, Y: dc.Max.Y - 20}, p.title)
	style.Font.Size = 9
	dc.FillText(style, vg.Point{X: 12, Y: dc.Max.Y - 34}, p.note)
	tiles := draw.Tiles{Cols: len(row), Rows: 1, PadX: 24}
	for i, canvas := range plot.Align([][]*plot.Plot{row}, tiles, draw.Crop(dc, 12, -16, 12, -48))[0] {
		row[i].Draw(canvas)
	}
}

// plot is nil if there is nothing to see.
func (p panel) plot(t *measure.Table) (*plot.Plot, error) {
	made := plot.New()
	made.BackgroundColor = nil
	made.Title.Text, made.X.Label.Text, made.Y.Label.Text = p.title, p.x, p.y
	made.Legend.Top, made.Legend.Left = true, true
	made.Legend.TextStyle.Font.Size = 9
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, color.RGBA{0xd9, 0xdd, 0xe1, 0xff}
	made.Add(grid)
	var bars []series
	highest := 0.0
	for _, s := range shown {
		xys := p.points(t, s.side)
		if len(xys) == 0 || len(xys) == 1 && len(t.Numbers(p.of, p.param)) > 1 {
			continue // there is no line through one point
		}
		for _, xy := range xys {
			highest = max(highest, xy.Y)
		}
		if err := p.add(made, s, xys, len(bars)); err != nil {
			return nil, err
		}
		bars = append(bars, s)
	}
	if len(bars) == 0 {
		return nil, nil
	}
	p.axes(made, t, bars, highest)
	return made, nil
}

// points are the figures of a side.
func (p panel) points(t *measure.Table, by string) (xys plotter.XYs) {
	for _, x := range t.Numbers(p.of, p.param) {
		before := p.before
		if p.bars {
			before = fmt.Sprintf(before, t.Last(p.of, "objects"))
		}
		if s := t.Of(at(p.of, fmt.Sprintf("%s%s=%d", before, p.param, x), by), p.unit); s.N > 0 {
			xys = append(xys, plotter.XY{X: float64(x), Y: p.figure(float64(x), s.Median)})
		}
	}
	return xys
}

func (p panel) add(to *plot.Plot, s series, xys plotter.XYs, place int) error {
	if p.bars {
		bar, err := plotter.NewBarChart(plotter.Values{xys[0].Y}, vg.Points(36))
		if err != nil {
			return err
		}
		bar.XMin, bar.Color = float64(place), s.color
		to.Add(bar)
		return nil
	}
	line, err := plotter.NewLine(xys)
	if err != nil {
		return err
	}
	line.Color, line.Width = s.color, vg.Points(s.width)
	if s.dashed {
		line.Dashes = []vg.Length{5, 3}
	}
	to.Add(line)
	to.Legend.Add(s.label, line)
	return nil
}

func (p panel) axes(made *plot.Plot, t *measure.Table, bars []series, highest float64) {
	made.Y.Min, made.Y.Max = 0, highest*1.45 // with room for the names of the lines
	var ticks []plot.Tick
	for _, x := range t.Numbers(p.of, p.param) {
		ticks = append(ticks, plot.Tick{Value: float64(x), Label: strconv.Itoa(x)})
	}
	switch {
	case p.bars:
		var names []string
		for _, s := range bars {
			names = append(names, s.label)
		}
		made.NominalX(names...)
		return
	case p.log:
		made.X.Scale, made.Y.Scale = plot.LogScale{}, plot.LogScale{}
		made.Y.Tick.Marker = plot.LogTicks{Prec: -1}
		made.Y.Min, made.Y.Max = 10, math.Pow(10, math.Ceil(math.Log10(highest)))*4
	case len(ticks) > 6:
		return // it is not the points that matter
	}
	made.X.Tick.Marker = plot.ConstantTicks(ticks)
}
