// Command report measures the library beside kube-apiserver's own encryption and
// the bare cipher, says which targets are met, and writes figures and plots.
package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/bench/suite"
	"github.com/kube-atrest/atrest/internal/measure"
)

func main() { measure.Main("report", parse, run) }

// options are what the command line says.
type options struct {
	out    string
	plan   measure.Plan
	scale  suite.Scale
	cases  []suite.Case
	remake bool
}

const intro = `Measures encryption at rest: this library beside kube-apiserver's own and the bare
cipher, in one process and one run.

Every round measures each of them once, A B C, B C A, and a figure is the ratio
of two of one round: the median of all rounds, and in brackets what eight tenths
of them lie between. So a machine that is slow for a while makes the brackets
wider and not the figure wrong. Nanoseconds are in benchmarks.tsv, and mean
something on this machine only.

Nothing passes or fails: a target that is not met is said to be not met.

  go run ./bench/report --quick              a first look, some two minutes
  go run ./bench/report                      all of it, some nine minutes
  go run ./bench/report --cases Write,Read   only these
  go run ./bench/report --remake             measures nothing: report and plots
                                             once more, from benchmarks.tsv

`

// Slices are short so that most of them are not interrupted, on a machine that
// does other work as well; rounds are many so that the median is one of those.
var (
	usual = measure.Plan{Rounds: 51, Slice: 2 * time.Millisecond}
	quick = measure.Plan{Rounds: 21, Slice: time.Millisecond}
)

func parse(args []string, help io.Writer) (*options, error) {
	fs := pflag.NewFlagSet("report", pflag.ContinueOnError)
	fs.SetOutput(help)
	fs.SortFlags = false
	var o options
	first := fs.Bool("quick", false, "a first look: few rounds, little memory, a small cold start")
	fs.IntVar(&o.plan.Rounds, "rounds", usual.Rounds, fmt.Sprintf("how many rounds; %d with --quick", quick.Rounds))
	fs.DurationVar(&o.plan.Slice, "slice", usual.Slice, fmt.Sprintf("how long one of them is measured in one round; %s with --quick", quick.Slice))
	fs.StringVar(&o.out, "out", "bench/results", "the `folder` for figures and plots; what is in it is replaced")
	names := fs.StringSlice("cases", nil, "only these cases; targets of others are said to be not measured")
	fs.BoolVar(&o.remake, "remake", false, "measure nothing, and make report and plots from the figures in --out")
	fs.Usage = func() {
		fmt.Fprint(help, intro, "Flags:\n", fs.FlagUsages(), "\nCases:\n")
		for _, c := range suite.Cases() {
			fmt.Fprintf(help, "  %-12s %s\n", c.Name, c.About)
		}
	}
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag: see --help", fs.Arg(0))
	}
	o.scale = suite.Full()
	if *first {
		o.scale = suite.Quick()
		if !fs.Changed("rounds") {
			o.plan.Rounds = quick.Rounds
		}
		if !fs.Changed("slice") {
			o.plan.Slice = quick.Slice
		}
	}
	if o.plan.Rounds < 1 || o.plan.Slice <= 0 {
		return nil, fmt.Errorf("--rounds is %d and --slice %s: both have to be more than nothing", o.plan.Rounds, o.plan.Slice)
	}
	var err error
	o.cases, err = measure.Choose(suite.Cases(), func(c suite.Case) string { return c.Name }, *names)
	return &o, err
}
