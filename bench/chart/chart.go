// Package chart draws for people who look for ten seconds: few colours, names
// where the eye is, the floor dashed or dark. In go points, out come SVG and
// PNG. It knows nothing of what is drawn.
package chart

import (
	"bytes"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is one picture: what is to be seen in it, how to read it, and a body.
type Chart struct {
	Title, Note string
	Body        Body
}

// Body is [Panels] or [Bars].
type Body interface {
	// IsEmpty tells that there is nothing to draw.
	IsEmpty() bool

	width() vg.Length
	draw(draw.Canvas) error
}

// Style says whose it is.
type Style int

// The styles.
const (
	Floor Style = iota
	Ours
	OursToo
	Theirs
	TheirsToo
	Other
)

var looks = map[Style]draw.LineStyle{
	Floor:     {Color: color.RGBA{0x20, 0x20, 0x20, 0xff}, Width: vg.Points(1.4), Dashes: []vg.Length{vg.Points(5), vg.Points(3)}},
	Ours:      {Color: color.RGBA{0x0b, 0x5f, 0xd3, 0xff}, Width: vg.Points(2.6)},
	OursToo:   {Color: color.RGBA{0x4d, 0xa3, 0xf0, 0xff}, Width: vg.Points(2)},
	Theirs:    {Color: color.RGBA{0xc9, 0x3a, 0x0c, 0xff}, Width: vg.Points(2)},
	TheirsToo: {Color: color.RGBA{0xee, 0x9a, 0x5d, 0xff}, Width: vg.Points(2)},
	Other:     {Color: color.RGBA{0x8a, 0x8f, 0x96, 0xff}, Width: vg.Points(1.6)},
}

var (
	ink  = color.RGBA{0x33, 0x38, 0x3d, 0xff}
	pale = color.RGBA{0xd9, 0xdd, 0xe1, 0xff}
)

const (
	height     = 4.1 * vg.Inch
	headHeight = 0.66 * vg.Inch
	margin     = 0.18 * vg.Inch
	dpi        = 144
)

// Render draws the chart.
func (c Chart) Render() (svg, png []byte, err error) {
	width := c.Body.width()
	vector := vgsvg.New(width, height)
	if err := c.draw(draw.New(vector)); err != nil {
		return nil, nil, err
	}
	bitmap := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))}
	if err := c.draw(draw.New(bitmap)); err != nil {
		return nil, nil, err
	}
	if svg, err = written(vector); err != nil {
		return nil, nil, err
	}
	png, err = written(bitmap)
	return svg, png, err
}

func written(from io.WriterTo) ([]byte, error) {
	var b bytes.Buffer
	_, err := from.WriteTo(&b)
	return b.Bytes(), err
}

func (c Chart) draw(dc draw.Canvas) error {
	dc.SetColor(color.White)
	dc.Fill(dc.Rectangle.Path())
	left := dc.Min.X + margin
	dc.FillText(textStyle(13, true), vg.Point{X: left, Y: dc.Max.Y - 0.29*vg.Inch}, c.Title)
	dc.FillText(textStyle(9, false), vg.Point{X: left, Y: dc.Max.Y - 0.48*vg.Inch}, c.Note)
	return c.Body.draw(draw.Crop(dc, margin, -margin, margin, -headHeight))
}

func textStyle(size font.Length, bold bool) draw.TextStyle {
	s := plot.New().Title.TextStyle
	s.Font = sans(size)
	if bold {
		s.Font.Weight = boldWeight
	}
	s.Color, s.XAlign, s.YAlign = ink, draw.XLeft, draw.YBottom
	return s
}
