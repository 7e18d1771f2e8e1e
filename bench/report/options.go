package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/suite"
)

// options are what the command line says.
type options struct {
	out   string
	plan  measure.Plan
	scale suite.Scale
	cases []suite.Case
	// unit is what ratios of time are taken of.
	unit string
}

const intro = `Measures encryption at rest: this library beside kube-apiserver's own, tink-go's
KMS envelope and the bare cipher, in one process and one run.

Every round measures each of them once, A B C, B C A, and a figure is the ratio
of two of one round: the median of all rounds, and in brackets what nine tenths
of them lie above and below. So a machine that is slow for a while makes the
brackets wider and not the figure wrong. Nanoseconds are in benchmarks.txt, for
benchstat, and mean something on this machine only.

Nothing passes or fails: a target that is not met is said to be not met.

  go run ./bench/report --quick              a first look, some two minutes
  go run ./bench/report                      all of it, some nine minutes
  go run ./bench/report --cases Write,Read   only these
  benchstat -col /side bench/results/benchmarks.txt

`

// Slices are short so that most of them are not interrupted, on a machine that
// does other work as well; rounds are many so that the median is one of those.
const (
	defaultRounds = 51
	defaultSlice  = 2 * time.Millisecond
	quickRounds   = 21
	quickSlice    = time.Millisecond
)

func parse(args []string, help io.Writer) (*options, error) {
	fs := pflag.NewFlagSet("report", pflag.ContinueOnError)
	fs.SetOutput(help)
	fs.SortFlags = false
	var o options
	quick := fs.Bool("quick", false, "a first look: few rounds, little memory, a small cold start")
	fs.IntVar(&o.plan.Rounds, "rounds", 0, fmt.Sprintf("how many rounds (%d, or %d with --quick)", defaultRounds, quickRounds))
	fs.DurationVar(&o.plan.Slice, "slice", 0, fmt.Sprintf("how long one of them is measured in one round (%s, or %s with --quick)", defaultSlice, quickSlice))
	fs.StringVar(&o.out, "out", "bench/results", "the folder for figures and plots; what is in it is replaced")
	names := fs.StringSlice("cases", nil, "only these cases; targets of others are said to be not measured")
	cpu := fs.Bool("cpu", false, "take ratios of processor time, not of the time that passes: for a machine that does other work as well")
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
	o.unit, o.scale = measure.NsPerOp, suite.Full()
	if *cpu {
		o.unit = measure.CPUNsPerOp
	}
	defaults := measure.Plan{Rounds: defaultRounds, Slice: defaultSlice}
	if *quick {
		defaults, o.scale = measure.Plan{Rounds: quickRounds, Slice: quickSlice}, suite.Quick()
	}
	if !fs.Changed("rounds") {
		o.plan.Rounds = defaults.Rounds
	}
	if !fs.Changed("slice") {
		o.plan.Slice = defaults.Slice
	}
	if o.plan.Rounds < 1 || o.plan.Slice <= 0 {
		return nil, fmt.Errorf("--rounds is %d and --slice %s: both have to be more than nothing", o.plan.Rounds, o.plan.Slice)
	}
	var err error
	o.cases, err = choose(*names)
	return &o, err
}

// choose gives the cases of the names, in the order of the suite; all if there are none.
func choose(names []string) ([]suite.Case, error) {
	if len(names) == 0 {
		return suite.Cases(), nil
	}
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	var chosen []suite.Case
	var all []string
	for _, c := range suite.Cases() {
		all = append(all, c.Name)
		if wanted[c.Name] {
			chosen = append(chosen, c)
			delete(wanted, c.Name)
		}
	}
	for n := range wanted {
		return nil, fmt.Errorf("there is no case %q: choose from %s", n, strings.Join(all, ", "))
	}
	return chosen, nil
}
