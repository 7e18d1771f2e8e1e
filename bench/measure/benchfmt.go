package measure

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"strconv"
)

// digits is how many of a figure are written: no machine repeats the fifth.
const digits = 5

// Write writes the book in the format of Go's benchmarks, which benchstat
// reads: a line for each sample. cpu is the machine's name for its processor.
func (b *Book) Write(to io.Writer, cpu string) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "goos: %s\ngoarch: %s\npkg: github.com/kube-atrest/atrest/bench\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, cpu)
	for _, n := range b.names {
		for _, s := range b.samples[n] {
			fmt.Fprintf(w, "Benchmark%s-%d\t%d", n, runtime.GOMAXPROCS(0), s.N)
			for _, m := range s.Metrics {
				fmt.Fprintf(w, "\t%s %s", short(m.Value), m.Unit)
			}
			fmt.Fprintln(w)
		}
	}
	return w.Flush() // which has the first error
}

// short is a figure without the digits that mean nothing. It has no exponent,
// which not everybody who reads the format knows.
func short(x float64) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
	if err != nil {
		rounded = x
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
