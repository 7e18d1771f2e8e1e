package measure

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"strconv"
)

// Write writes the book in the format of Go's benchmarks, which benchstat
// reads: a line for each sample. cpu is the machine's name for its processor.
func (b *Book) Write(to io.Writer, cpu string) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "goos: %s\ngoarch: %s\npkg: github.com/kube-atrest/atrest/bench\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, cpu)
	for _, n := range b.names {
		for _, s := range b.samples[n] {
			fmt.Fprintf(w, "Benchmark%s-%d\t%d", n, runtime.GOMAXPROCS(0), s.N)
			for _, m := range s.Metrics {
				fmt.Fprintf(w, "\t%s %s", strconv.FormatFloat(m.Value, 'f', -1, 64), m.Unit)
			}
			fmt.Fprintln(w)
		}
	}
	return w.Flush() // which has the first error
}
