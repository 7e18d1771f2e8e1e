package measure

import (
	"math"
	"slices"
)

// Units of figures, in the words of Go's benchmarks.
const (
	NsPerOp     = "ns/op"     // time that passes
	CPUNsPerOp  = "cpu-ns/op" // time of processors, with the collection of garbage
	BytesPerOp  = "B/op"
	AllocsPerOp = "allocs/op"
)

// Name is what a figure is of.
type Name struct {
	Case   string // what is done: Write
	Params string // with what: size=1024; may be empty
	Side   string // by whom
}

// Of is the same for another side.
func (n Name) Of(side string) Name {
	n.Side = side
	return n
}

// Figure is one number.
type Figure struct {
	Unit  string
	Value float64
}

type entry struct {
	Name
	unit string
}

// Book keeps figures in the order of the rounds. Not for concurrent use.
type Book struct {
	entries []entry // in the order of their first mention
	values  map[entry][]float64
}

// NewBook gives an empty book.
func NewBook() *Book { return &Book{values: map[entry][]float64{}} }

// Add writes figures of one round into the book.
func (b *Book) Add(n Name, figures ...Figure) {
	for _, f := range figures {
		e := entry{n, f.Unit}
		if _, known := b.values[e]; !known {
			b.entries = append(b.entries, e)
		}
		b.values[e] = append(b.values[e], f.Value)
	}
}

// Take adds what is in another book.
func (b *Book) Take(other *Book) {
	for _, e := range other.entries {
		for _, v := range other.values[e] {
			b.Add(e.Name, Figure{e.unit, v})
		}
	}
}

// Values are the figures of a unit, one for each round; nil if there are none.
func (b *Book) Values(n Name, unit string) []float64 { return b.values[entry{n, unit}] }

// Has reports whether there are figures of a case and a side.
func (b *Book) Has(of, side string) bool {
	return slices.ContainsFunc(b.entries, func(e entry) bool { return e.Case == of && e.Side == side })
}

// Table is what of the book is kept. Of figures in units of ratios it also has what one
// side is to another with the same case and parameters.
func (b *Book) Table(ratios ...string) *Table {
	t := &Table{at: map[place]Spread{}}
	for i, e := range b.entries {
		t.add(place{e, ""}, SpreadOf(b.values[e]))
		if !slices.Contains(ratios, e.unit) {
			continue
		}
		for _, other := range b.entries[i+1:] {
			if other.unit == e.unit && other.Of(e.Side) == e.Name {
				t.add(place{e, other.Side}, SpreadOf(Divide(b.values[e], b.values[other])))
			}
		}
	}
	return t
}

// Spread is how some figures lie: a tenth of them below Low, a quarter below Lower, half
// below Median, and so on up. The zero value is that of no figures.
type Spread struct {
	N                               int
	Low, Lower, Median, Upper, High float64
}

// SpreadOf gives the spread of figures.
func SpreadOf(figures []float64) Spread {
	if len(figures) == 0 {
		return Spread{}
	}
	q := func(q float64) float64 { return Quantile(figures, q) }
	return Spread{len(figures), q(0.1), q(0.25), q(0.5), q(0.75), q(0.9)}
}

// inverse is the spread of 1 divided by the figures.
func (s Spread) inverse() Spread {
	if s.N == 0 {
		return s
	}
	return Spread{s.N, 1 / s.High, 1 / s.Upper, 1 / s.Median, 1 / s.Lower, 1 / s.Low}
}

// Quantile interpolates between the two nearest figures, of which there is at least one.
func Quantile(figures []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	below, part := math.Modf(q * float64(len(sorted)-1))
	i := int(below)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + part*(sorted[i+1]-sorted[i])
}

// Divide gives a divided by b, round by round, without rounds in which b is 0.
func Divide(a, b []float64) []float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return ratios
}
