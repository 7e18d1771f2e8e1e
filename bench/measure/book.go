package measure

import (
	"slices"
)

// Units of figures, in the words of Go's benchmarks.
const (
	NsPerOp     = "ns/op"     // time that passes
	CPUNsPerOp  = "cpu-ns/op" // time of processors, with the collection of garbage
	BytesPerOp  = "B/op"
	AllocsPerOp = "allocs/op"
	MBPerSecond = "MB/s"
)

// Name is what a figure is of.
type Name struct {
	Case   string // what is done: Write
	Params string // with what: size=1KiB; may be empty
	Side   string // by whom
}

// String is the name as that of a Go benchmark, without its first word.
func (n Name) String() string { return n.Case + "/" + n.Path() }

// Path is the name without the case.
func (n Name) Path() string {
	if n.Params == "" {
		return "side=" + n.Side
	}
	return n.Params + "/side=" + n.Side
}

// Group is the name without the side.
func (n Name) Group() string { return n.Case + "/" + n.Params }

// With gives the name with one more parameter.
func (n Name) With(param string) Name {
	if n.Params != "" {
		param = n.Params + "/" + param
	}
	n.Params = param
	return n
}

// Metric is one figure.
type Metric struct {
	Unit  string
	Value float64
}

// Sample is what one round gave: N operations, and their figures.
type Sample struct {
	N       int
	Metrics []Metric
}

// Value is the figure of a unit, and whether there is one.
func (s Sample) Value(unit string) (float64, bool) {
	for _, m := range s.Metrics {
		if m.Unit == unit {
			return m.Value, true
		}
	}
	return 0, false
}

// Measurement is a sample and what it is of.
type Measurement struct {
	Name
	Sample
}

// Book keeps samples by name, in the order of the rounds. Not for concurrent use.
type Book struct {
	names   []Name
	samples map[Name][]Sample
}

// NewBook gives an empty book.
func NewBook() *Book { return &Book{samples: map[Name][]Sample{}} }

// Add writes a measurement into the book.
func (b *Book) Add(m Measurement) {
	if _, known := b.samples[m.Name]; !known {
		b.names = append(b.names, m.Name)
	}
	b.samples[m.Name] = append(b.samples[m.Name], m.Sample)
}

// Names are those of all samples, in the order of their first mention.
func (b *Book) Names() []Name { return slices.Clone(b.names) }

// Samples are those of a name.
func (b *Book) Samples(n Name) []Sample { return b.samples[n] }

// Values are the figures of a unit, one for each round; nil if there are none.
func (b *Book) Values(n Name, unit string) []float64 {
	var values []float64
	for _, s := range b.samples[n] {
		if v, ok := s.Value(unit); ok {
			values = append(values, v)
		}
	}
	return values
}
