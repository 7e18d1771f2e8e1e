// Command wraps measures plugins: how many keys a back end wraps and unwraps in a second, and how
// long a call takes, alone and behind the kit on a real socket. What a plugin costs is the
// ratio of the two within a round.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/internal/measure"
)

func main() {
	if isPlugin(os.Args) {
		if err := servePlugin(context.Background(), os.Args[2], os.Args[3], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	measure.Main("wraps", parse, run)
}

// figures is the file that the report is made from.
const figures, report = "plugins.tsv", "plugins.md"

// options are what the command line says.
type options struct {
	out    string
	plan   measure.Plan
	stores []store
	named  bool // the stores, of which none may be left out then
	remake bool
}

const intro = `Measures KMS plugins: each back end alone, behind the kit (keeper), behind the kit on a
unix socket (plugin), and behind k8s.io/kms/pkg/service on one (reference), in one
process and one run.

Every round measures each of them once, in turns, and a figure is the ratio of two of
one round: the median of all rounds, and in brackets what eight tenths of them lie
between. Times in themselves mean something on this machine only.
Memory is that of a process which serves the plugin and nothing else.

A back end that needs what this machine has not is left out, and the report says so, unless
it is named. vault needs the program of kmsplugin/vault/realvault, named in ATREST_VAULT;
pkcs11 needs SoftHSM and cgo, tpm needs swtpm.

  go run ./bench/wraps --quick              a first look, some two minutes
  go run ./bench/wraps                      all of it, some ten minutes
  go run ./bench/wraps --stores keyfile     only this back end
  go run ./bench/wraps --remake             measures nothing: the report once more

`

var (
	usual = measure.Plan{Rounds: 9, Slice: 200 * time.Millisecond, Collects: true}
	quick = measure.Plan{Rounds: 3, Slice: 50 * time.Millisecond, Collects: true}
)

func parse(args []string, help io.Writer) (*options, error) {
	fs := pflag.NewFlagSet("wraps", pflag.ContinueOnError)
	fs.SetOutput(help)
	fs.SortFlags = false
	o := options{plan: usual}
	first := fs.Bool("quick", false, "a first look: few and short rounds")
	fs.StringVar(&o.out, "out", "bench/results", "the `folder` for the figures and the report, which are replaced")
	names := fs.StringSlice("stores", nil, "only these back ends")
	fs.BoolVar(&o.remake, "remake", false, "measure nothing, and make the report from the figures in --out")
	fs.Usage = func() {
		fmt.Fprint(help, intro, "Flags:\n", fs.FlagUsages(), "\nBack ends:\n")
		for _, s := range stores() {
			fmt.Fprintf(help, "  %-12s %s\n", s.name, s.about)
		}
	}
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag: see --help", fs.Arg(0))
	}
	if *first {
		o.plan = quick
	}
	var err error
	o.named = len(*names) > 0
	o.stores, err = measure.Choose(stores(), func(s store) string { return s.name }, *names)
	return &o, err
}

// run measures, or reads what was measured before, prints to out and writes the results.
func run(ctx context.Context, o *options, out, progress io.Writer) error {
	var kept bytes.Buffer
	if o.remake {
		content, err := os.ReadFile(filepath.Join(o.out, figures))
		if err != nil {
			return err
		}
		kept.Write(content)
	} else {
		table, err := o.measure(ctx, progress)
		if err != nil {
			return err
		}
		if err := table.Write(&kept); err != nil {
			return err
		}
	}
	table, err := measure.Read(bytes.NewReader(kept.Bytes()))
	if err != nil {
		return err
	}
	var told bytes.Buffer
	tell(&told, table)
	if _, err := out.Write(told.Bytes()); err != nil {
		return err
	}
	return measure.Save(o.out, map[string][]byte{figures: kept.Bytes(), report: told.Bytes()}, out)
}

func (o *options) measure(ctx context.Context, progress io.Writer) (*measure.Table, error) {
	measure.WarnIfBusy(progress)
	head := measure.Machine("google.golang.org/grpc", "k8s.io/kms")
	measure.Settle()
	book := measure.NewBook()
	for i, s := range o.stores {
		var why leftOut
		err := measure.Case(progress, i, len(o.stores), s.name+": "+s.about, func() error {
			err := o.measureOne(ctx, s, book)
			if o.named || !errors.As(err, &why) {
				return err
			}
			head += leftOutLine(s, why)
			fmt.Fprintf(progress, "left out, %s … ", why)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	table := book.Table(measure.NsPerOp, measure.CPUNsPerOp, p50, p99)
	table.Head = head + fmt.Sprintf("rounds: %d of %s each\n", o.plan.Rounds, o.plan.Slice)
	return table, nil
}

func (o *options) measureOne(ctx context.Context, s store, book *measure.Book) error {
	err := inFolder(func(folder string) error { return o.measureSides(ctx, s, folder, book) })
	if err != nil {
		return err
	}
	return o.measureMemory(ctx, s, book)
}

func (o *options) measureSides(ctx context.Context, s store, folder string, book *measure.Book) (err error) {
	sides, err := sidesOf(ctx, s, folder)
	defer func() {
		for _, by := range sides[min(1, len(sides)):] {
			err = errors.Join(err, by.end())
		}
		if len(sides) > 0 { // what the others stand on
			err = errors.Join(err, sides[0].end())
		}
	}()
	if err != nil {
		return err
	}
	all, err := contestants(ctx, s, sides)
	if err != nil {
		return err
	}
	return o.plan.Interleave(ctx, all, book)
}

// inFolder has f use a folder that is there as long as f runs.
func inFolder(f func(folder string) error) error {
	folder, err := os.MkdirTemp("", "wraps") // a short name: a socket's has to fit into about 100 bytes
	if err != nil {
		return err
	}
	return errors.Join(f(folder), os.RemoveAll(folder))
}
