package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// options are what the command line says.
type options struct {
	out   string
	cases []measured
	sides []side
	scale scale
	args  []string // but for the folder: what has to be asked for again to see the same
}

// scale is how much is measured.
type scale struct {
	rounds  int           // of creates; the other cases follow from it
	slice   time.Duration // of creates, for one side in one round
	secrets int           // that are listed, and that lie in etcd when a server starts
	deks    int           // that those Secrets are under, when a server starts
	writes  int           // that memory is measured after
}

// lists is how many LISTs each side answers.
func (s scale) lists() int { return 5 * s.rounds }

// starts is how often each side is started.
func (s scale) starts() int { return (s.rounds + 3) / 4 }

var (
	full  = scale{rounds: 20, slice: time.Second, secrets: 10_000, deks: 200, writes: 100_000}
	quick = scale{rounds: 2, slice: 300 * time.Millisecond, secrets: 500, deks: 10, writes: 2_000}
)

const intro = `Measures what users of an apiserver feel of encryption at rest: a real kube-apiserver
with atrest, beside the same kube-apiserver with its own encryption (KMS v2) and with
none. One etcd, as a process of its own and with fsync, holds the objects of all
three; one key-file plugin wraps the keys of both that encrypt.

The three take turns, A B C, B C A. A figure is the median, a ratio is that of two
figures of one round, and brackets hold what eight tenths of the rounds lie between.
A ratio whose brackets hold 1 is no difference that can be seen here. Server, etcd and
clients share this machine, so what is left of a difference is less than what the
encryption alone would show: for that, see go run ./bench/report.

  go run ./apiserver/measure --quick            a first look, some two minutes
  go run ./apiserver/measure                    all of it, some ten minutes
  go run ./apiserver/measure --cases start      only how long a start takes
  benchstat -col /side bench/results/end-to-end.txt

Nothing passes or fails. Nothing is left behind but the two files in --out.

`

func parse(args []string, help io.Writer) (*options, error) {
	fs := pflag.NewFlagSet("measure", pflag.ContinueOnError)
	fs.SetOutput(help)
	fs.SortFlags = false
	o := options{sides: sides()}
	first := fs.Bool("quick", false, "a first look: few rounds, few Secrets, few writes")
	fs.IntVar(&o.scale.rounds, "rounds", full.rounds, "how many rounds of creates; five LISTs and a quarter of a start for each")
	fs.DurationVar(&o.scale.slice, "slice", full.slice, "how long creates last, for one side in one round")
	fs.IntVar(&o.scale.secrets, "secrets", full.secrets, "how many Secrets are listed, and stored when a server starts")
	fs.IntVar(&o.scale.deks, "deks", full.deks, "how many DEKs those Secrets are under when a server starts")
	fs.IntVar(&o.scale.writes, "writes", full.writes, "how many writes memory is measured after")
	fs.StringVar(&o.out, "out", "bench/results", "the `folder` for end-to-end.md and end-to-end.txt, which are replaced")
	names := fs.StringSlice("cases", nil, "only these cases")
	fs.Usage = func() {
		fmt.Fprint(help, intro, "Flags:\n", fs.FlagUsages(), "\nCases:\n")
		for _, c := range cases() {
			fmt.Fprintf(help, "  %-8s %s\n", c.name, c.about)
		}
	}
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag: see --help", fs.Arg(0))
	}
	fs.Visit(func(f *pflag.Flag) {
		if f.Name != "out" {
			o.args = append(o.args, fmt.Sprintf("--%s=%s", f.Name, strings.Trim(f.Value.String(), "[]")))
		}
	})
	if *first {
		o.scale = o.scale.lessened(fs.Changed)
	}
	if s := o.scale; min(s.rounds, s.secrets, s.deks) < 1 || s.writes < chunks || s.slice <= 0 {
		return nil, fmt.Errorf("--rounds, --slice, --secrets and --deks have to be more than nothing, and --writes at least %d", chunks)
	}
	var err error
	o.cases, err = choose(*names)
	return &o, err
}

// lessened is the scale of --quick, but for what was asked for by name.
func (s scale) lessened(asked func(flag string) bool) scale {
	if !asked("rounds") {
		s.rounds = quick.rounds
	}
	if !asked("slice") {
		s.slice = quick.slice
	}
	if !asked("secrets") {
		s.secrets = quick.secrets
	}
	if !asked("deks") {
		s.deks = quick.deks
	}
	if !asked("writes") {
		s.writes = quick.writes
	}
	return s
}

// choose gives the cases of the names in their own order; all if there are none.
func choose(names []string) ([]measured, error) {
	if len(names) == 0 {
		return cases(), nil
	}
	var chosen []measured
	var all []string
	for _, c := range cases() {
		all = append(all, c.name)
		if slices.Contains(names, c.name) {
			chosen = append(chosen, c)
		}
	}
	for _, n := range names {
		if !slices.Contains(all, n) {
			return nil, fmt.Errorf("there is no case %q: choose from %s", n, strings.Join(all, ", "))
		}
	}
	return chosen, nil
}
