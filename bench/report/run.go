package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/bench/suite"
)

// run measures, judges, prints to out and writes the results. Progress goes to
// progressTo.
func run(ctx context.Context, o *options, out, progressTo io.Writer) error {
	m := inspect()
	if m.busy() {
		fmt.Fprintf(progressTo, "The machine is busy (load %.1f on %d processors): expect wide spreads, or use --cpu.\n", m.load, m.processors)
	}
	book, err := measureAll(ctx, o, progressTo)
	if err != nil {
		return err
	}
	found := check(book, o)
	if err := (text{out}).write(m, o, found); err != nil {
		return err
	}
	files, err := save(o, m, book, found)
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	_, err = fmt.Fprintf(out, "\nWritten to %s: %s\n", o.out, files)
	return err
}

func measureAll(ctx context.Context, o *options, progressTo io.Writer) (_ *measure.Book, err error) {
	lab, err := side.NewLab(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	s, err := suite.NewSetting(ctx, lab, o.scale)
	if err != nil {
		return nil, err
	}
	measure.Settle()
	book := measure.NewBook()
	for i, c := range o.cases {
		p := newProgress(progressTo, fmt.Sprintf("[%d/%d] %s: %s", i+1, len(o.cases), c.Name, c.About))
		if err := measureCase(ctx, o, c, s, book, p); err != nil {
			p.end("failed")
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		p.end("done")
	}
	return book, nil
}

func measureCase(ctx context.Context, o *options, c suite.Case, s *suite.Setting, book *measure.Book, p *progress) error {
	contestants, err := c.Contestants(ctx, s)
	if err != nil {
		return err
	}
	plan := c.Plan(o.plan)
	plan.Before, plan.After = s.Renew, p.step
	p.expect(plan.Rounds * len(contestants))
	return plan.Interleave(ctx, contestants, book)
}
