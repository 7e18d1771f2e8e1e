package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strconv"
)

// Units of figures; those of Go's benchmarks where it has one.
const (
	nsPerOp    = "ns/op"     // time that passes
	cpuPerOp   = "cpu-ns/op" // time of processors in the apiserver
	listedNs   = "listed-ns" // from the start to the end of the first LIST
	decrypts   = "decrypts"  // calls to the plugin
	etcdBytes  = "etcd-B"    // that etcd has sent
	heapBytes  = "heap-B"
	residentB  = "resident-B"
	heapPerOp  = "heap-B/op" // by which the heap has grown
	wroteSoFar = "writes"
)

// name is what a figure is of.
type name struct{ group, side string }

// figure is one number.
type figure struct {
	unit  string
	value float64
}

// sample is what one round gave: n operations, and their figures.
type sample struct {
	n       int
	figures []figure
}

// book keeps samples by name, in the order of the rounds.
type book struct {
	names   []name
	samples map[name][]sample
}

func newBook() *book { return &book{samples: map[name][]sample{}} }

func (b *book) add(n name, ops int, figures ...figure) {
	if _, known := b.samples[n]; !known {
		b.names = append(b.names, n)
	}
	b.samples[n] = append(b.samples[n], sample{ops, figures})
}

// take adds what is in another book.
func (b *book) take(other *book) {
	for _, n := range other.names {
		for _, s := range other.samples[n] {
			b.add(n, s.n, s.figures...)
		}
	}
}

// values are the figures of a unit, one for each round.
func (b *book) values(n name, unit string) []float64 {
	var values []float64
	for _, s := range b.samples[n] {
		for _, f := range s.figures {
			if f.unit == unit {
				values = append(values, f.value)
			}
		}
	}
	return values
}

// write writes the book in the format of Go's benchmarks, which benchstat reads: a line
// for each sample.
func (b *book) write(to io.Writer, cpu string) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "goos: %s\ngoarch: %s\npkg: github.com/kube-atrest/atrest/apiserver/measure\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, cpu)
	for _, n := range b.names {
		for _, s := range b.samples[n] {
			fmt.Fprintf(w, "Benchmark%s/side=%s-%d\t%d", n.group, n.side, runtime.GOMAXPROCS(0), s.n)
			for _, f := range s.figures {
				fmt.Fprintf(w, "\t%s %s", strconv.FormatFloat(f.value, 'f', -1, 64), f.unit)
			}
			fmt.Fprintln(w)
		}
	}
	return w.Flush() // which has the first error
}

// spread is the middle of some figures, and what a tenth of them lies below and above.
type spread struct {
	median, low, high float64
	n                 int
}

func spreadOf(figures []float64) spread {
	if len(figures) == 0 {
		return spread{}
	}
	return spread{quantile(figures, 0.5), quantile(figures, 0.1), quantile(figures, 0.9), len(figures)}
}

// quantile interpolates between the two nearest figures, of which there is at least one.
func quantile(figures []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	below, part := math.Modf(q * float64(len(sorted)-1))
	i := int(below)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + part*(sorted[i+1]-sorted[i])
}

// divide gives a divided by b, round by round, without rounds in which b is 0.
func divide(a, b []float64) []float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return ratios
}
