package chart

import (
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bars are lengths, one below the other.
type Bars []Bar

// Bar is one length. Text stands at its end.
type Bar struct {
	Label string
	Style Style
	Value float64
	Text  string
}

const (
	barNames = 1.6 * vg.Inch // left of the bars
	barTexts = 2.3 * vg.Inch // right of the longest
	barShare = 0.55          // of its row
)

// IsEmpty tells that there are no bars.
func (b Bars) IsEmpty() bool { return len(b) == 0 }

func (b Bars) width() vg.Length { return aloneWidth }

func (b Bars) draw(dc draw.Canvas) error {
	longest := 0.0
	for _, bar := range b {
		longest = max(longest, bar.Value)
	}
	if longest == 0 {
		longest = 1
	}
	row := (dc.Max.Y - dc.Min.Y) / vg.Length(len(b))
	room := dc.Max.X - dc.Min.X - barNames - barTexts
	for i, bar := range b {
		middle := dc.Max.Y - row*(vg.Length(i)+0.5)
		from := dc.Min.X + barNames
		to := from + max(vg.Points(1.5), room*vg.Length(bar.Value/longest))
		box := vg.Rectangle{Min: vg.Point{X: from, Y: middle - row*barShare/2}, Max: vg.Point{X: to, Y: middle + row*barShare/2}}
		dc.SetColor(looks[bar.Style].Color)
		dc.Fill(box.Path())

		name := textStyle(10, bar.Style == Ours)
		name.Color, name.XAlign, name.YAlign = looks[bar.Style].Color, draw.XRight, draw.YCenter
		dc.FillText(name, vg.Point{X: from - 8, Y: middle}, bar.Label)
		text := textStyle(10, bar.Style == Ours)
		text.YAlign = draw.YCenter
		dc.FillText(text, vg.Point{X: to + 8, Y: middle}, bar.Text)
	}
	return nil
}
