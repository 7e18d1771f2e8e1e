// Command measure shows what encryption at rest costs the users of a real kube-apiserver:
// with this library, with kube-apiserver's own encryption, and with none, on one etcd
// with its fsync on and one KMS plugin.
//
// It starts everything itself, as processes of its own, takes turns between the three,
// and writes a table and the numbers. It judges nothing.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/measure"
)

func main() {
	if program, started := harness.Program(harness.Programs()); started {
		os.Exit(program())
	}
	measure.Main("measure", parse, run)
}

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
	rounds  int // of starts, four to one; a LIST is five to one
	secrets int // that are listed, and that lie in etcd when a server starts
	deks    int // that those Secrets are under, when a server starts
	writes  int // that memory is measured after
	moved   int // Secrets that are created, and stored again
	audited int // Secrets that are counted
}

// lists is how many LISTs each side answers.
func (s scale) lists() int { return 5 * s.rounds }

// starts is how often each side is started.
func (s scale) starts() int { return (s.rounds + 3) / 4 }

// quick are the flags that --quick stands for.
var quick = map[string]string{"rounds": "2", "secrets": "500", "deks": "10", "writes": "2000", "moved": "500", "audited": "20000"}

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
  go run ./apiserver/measure                    all of it, some twenty minutes
  go run ./apiserver/measure --cases start      only how long a start takes

What an operator does is measured too: how many Secrets are stored again in a second
beside how many are created, by the same number of clients on the same server, and how
long and with how much memory atrest audit counts a million.

Nothing passes or fails. Nothing is left behind but the files in --out.

`

func parse(args []string, help io.Writer) (*options, error) {
	fs := pflag.NewFlagSet("measure", pflag.ContinueOnError)
	fs.SetOutput(help)
	fs.SortFlags = false
	o := options{sides: sides()}
	first := fs.Bool("quick", false, "a first look: few rounds, few Secrets, few writes")
	fs.IntVar(&o.scale.rounds, "rounds", 20, "how many rounds: five LISTs and a quarter of a start for each")
	fs.IntVar(&o.scale.secrets, "secrets", 10_000, "how many Secrets are listed, and stored when a server starts")
	fs.IntVar(&o.scale.deks, "deks", 200, "how many DEKs those Secrets are under when a server starts")
	fs.IntVar(&o.scale.writes, "writes", 100_000, "how many writes memory is measured after")
	fs.IntVar(&o.scale.moved, "moved", 2000, "how many Secrets are created, and stored again, each time")
	fs.IntVar(&o.scale.audited, "audited", 1_000_000, "how many Secrets are audited; 2 KiB of disk for each, below TMPDIR")
	fs.StringVar(&o.out, "out", "bench/results", "the `folder` for end-to-end.md and operate.md and their .tsv: those of the cases are replaced")
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
	for flag, value := range quick {
		if *first && !fs.Changed(flag) {
			_ = fs.Set(flag, value) // of these flags
		}
	}
	if s := o.scale; min(s.rounds, s.secrets, s.deks, s.moved) < 1 || s.writes < chunks || s.audited < 100 {
		return nil, fmt.Errorf("--rounds, --secrets, --deks and --moved have to be more than nothing, --writes at least %d, and --audited at least 100", chunks)
	}
	var err error
	o.cases, err = measure.Choose(cases(), func(c measured) string { return c.name }, *names)
	return &o, err
}
