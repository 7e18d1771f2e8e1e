package measure

import (
	"math"
	"slices"
)

// Spread is the middle of some figures and how far they lie apart. The zero
// value is that of no figures.
type Spread struct {
	Median float64
	// Low and High are what a tenth of the figures lies below and above.
	Low, High float64
	N         int
}

// SpreadOf gives the spread of figures.
func SpreadOf(figures []float64) Spread {
	if len(figures) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(figures))
	return Spread{Median: quantile(sorted, 0.5), Low: quantile(sorted, 0.1), High: quantile(sorted, 0.9), N: len(sorted)}
}

// quantile interpolates between the two nearest of the sorted figures.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	below, part := math.Modf(at)
	i := int(below)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + part*(sorted[i+1]-sorted[i])
}

// Ratio is the spread of a divided by b, round by round.
func Ratio(a, b []float64) Spread { return SpreadOf(Divide(a, b)) }

// Divide gives a divided by b, round by round. Where b is 0 the ratio is 1 if a
// is 0 too, else infinite.
func Divide(a, b []float64) []float64 {
	ratios := make([]float64, 0, len(a))
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			ratios = append(ratios, 1)
			continue
		}
		ratios = append(ratios, a[i]/b[i])
	}
	return ratios
}
