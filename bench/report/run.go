package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/kube-atrest/atrest/bench/suite"
	"github.com/kube-atrest/atrest/internal/measure"
)

// figures is the file that the others are made from. operated has those of apiserver/measure
// that are drawn, too.
const figures, operated = "benchmarks.tsv", "operate.tsv"

// run measures, judges, prints to out and writes the results. Progress goes to
// progressTo.
func run(ctx context.Context, o *options, out, progressTo io.Writer) error {
	table, err := o.table(ctx, progressTo)
	if err != nil {
		return err
	}
	var kept, told bytes.Buffer
	if err := table.Write(&kept); err != nil {
		return err
	}
	// What is told is what can be told again of the file.
	if table, err = measure.Read(bytes.NewReader(kept.Bytes())); err != nil {
		return err
	}
	files, err := drawAll(table)
	if err != nil {
		return err
	}
	tell(&told, table, files)
	files["report.md"], files[figures] = told.Bytes(), kept.Bytes()
	if err := o.drawOperated(files); err != nil {
		return err
	}
	if _, err := out.Write(told.Bytes()); err != nil {
		return err
	}
	return measure.Save(o.out, files, out)
}

// drawOperated adds the plots of what apiserver/measure wrote into the same folder, if it did.
func (o *options) drawOperated(files map[string][]byte) error {
	table, err := o.read(operated)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	more, err := drawAll(table)
	maps.Copy(files, more)
	return err
}

func (o *options) read(file string) (*measure.Table, error) {
	f, err := os.Open(filepath.Join(o.out, file))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return measure.Read(f)
}

// table measures, or reads what was measured before.
func (o *options) table(ctx context.Context, progressTo io.Writer) (*measure.Table, error) {
	if o.remake {
		return o.read(figures)
	}
	measure.WarnIfBusy(progressTo)
	head := measure.Machine("k8s.io/apiserver", "k8s.io/kms", "k8s.io/component-base", "golang.org/x/crypto",
		"github.com/prometheus/client_golang", "google.golang.org/grpc")
	book, err := o.measure(ctx, progressTo)
	if err != nil {
		return nil, err
	}
	table := book.Table(measure.NsPerOp, measure.CPUNsPerOp, suite.Gain)
	table.Head = head + fmt.Sprintf("rounds: %d of %s each; fewer and longer ones for goroutines and garbage, some for the rest\n", o.plan.Rounds, o.plan.Slice)
	return table, nil
}

func (o *options) measure(ctx context.Context, progressTo io.Writer) (_ *measure.Book, err error) {
	s, err := suite.NewSetting(ctx, o.scale)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	measure.Settle()
	book := measure.NewBook()
	for i, c := range o.cases {
		err := measure.Case(progressTo, i, len(o.cases), c.Name+": "+c.About, func() error { return s.Measure(ctx, c, o.plan, book) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return book, nil
}

// tell writes the report, which shows those plots that were drawn.
func tell(w io.Writer, table *measure.Table, plots map[string][]byte) {
	found := check(table)
	fmt.Fprintf(w, "# Measured\n\nMade by `go run ./bench/report`; do not edit.\n\n"+
		"Values of 1 KiB unless said, metrics on; a figure is the median of all rounds, and what eight tenths of them lie between. "+
		"Ratios are of two times within a round, of the time that passes and of that of processors.\n\n%s\n\n", summary(found))
	row := func(cells ...string) { measure.Row(w, cells...) }
	row("operation", "figure", "measured", "of processors", "target", "verdict", "beside")
	fmt.Fprintln(w, strings.Repeat("|---", 7)+"|")
	last := ""
	for _, f := range found {
		what := f.what
		if what == last {
			what = "" // it stands above
		}
		last = f.what
		row(what, f.figure, f.measured, f.cpu, f.target, string(f.verdict), f.beside)
	}
	for _, p := range pictures {
		if plots[p.file+".svg"] != nil {
			fmt.Fprintf(w, "\n![%s](%s.svg)\n", p.title, p.file)
		}
	}
	fmt.Fprintf(w, "\n## The machine\n\n```\n%s```\n", table.Head)
}

// summary counts the verdicts.
func summary(found []finding) string {
	n := map[verdict]int{}
	for _, f := range found {
		n[f.verdict]++
	}
	var parts []string
	for _, v := range []verdict{met, atFloor, notMet, notMeasured} {
		if n[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], v))
		}
	}
	return "Targets: " + strings.Join(parts, ", ") + "."
}
