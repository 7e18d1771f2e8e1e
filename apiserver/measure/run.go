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

	"golang.org/x/term"
)

// run measures, prints the table to out and writes the results. Progress goes to
// progressTo.
func run(ctx context.Context, o *options, out, progressTo io.Writer) (err error) {
	l, err := newLab(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	m, err := inspect(l.folder)
	if err != nil {
		return err
	}
	if m.busy() {
		fmt.Fprintf(progressTo, "The machine is busy (load %.1f on %d processors): expect wide spreads.\n", m.load, m.processors)
	}
	found := newBook()
	failed := measureAll(ctx, o, l, found, progressTo)
	if failed != nil && len(found.names) == 0 {
		return failed
	}
	// Cases that came to their end are worth keeping, whatever happened to the next one.
	return errors.Join(failed, publish(o, m, found, out))
}

// measureAll writes into found what the cases give that come to their end. The first that
// does not ends it.
func measureAll(ctx context.Context, o *options, l *lab, found *book, progressTo io.Writer) error {
	for i, c := range o.cases {
		p := &progress{to: progressTo, title: fmt.Sprintf("[%d/%d] %s: %s", i+1, len(o.cases), c.name, c.about), began: time.Now()}
		p.tell("setting up")
		b := &bench{lab: l, scale: o.scale, sides: o.sides, book: newBook(), told: p.step}
		if err := c.run(ctx, b); err != nil {
			p.end("failed")
			return fmt.Errorf("%s: %w", c.name, err)
		}
		p.end("done")
		found.take(b.book)
	}
	return nil
}

// publish writes the results into the folder and the table to out.
func publish(o *options, m machine, found *book, out io.Writer) error {
	var table, numbers bytes.Buffer
	if err := (report{o.scale, found, o.args}).write(&table, m); err != nil {
		return err
	}
	if err := found.write(&numbers, m.cpu); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for file, content := range map[string][]byte{"end-to-end.md": table.Bytes(), "end-to-end.txt": numbers.Bytes()} {
		if err := os.WriteFile(filepath.Join(o.out, file), content, 0o644); err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	}
	_, err := fmt.Fprintf(out, "%s\nWritten to %s: end-to-end.md, end-to-end.txt\n", table.Bytes(), o.out)
	return err
}

// progress tells how far a case is: on a terminal all the time, elsewhere when it begins
// and ends.
type progress struct {
	to    io.Writer
	title string
	began time.Time
}

func (p *progress) live() bool {
	f, ok := p.to.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (p *progress) step(done, of int) {
	if p.live() {
		p.tell(fmt.Sprintf("%d%%", 100*done/of))
	}
}

func (p *progress) end(how string) {
	p.tell(fmt.Sprintf("%s in %s", how, time.Since(p.began).Round(100*time.Millisecond)))
	if p.live() {
		fmt.Fprintln(p.to)
	}
}

func (p *progress) tell(what string) {
	if p.live() {
		fmt.Fprintf(p.to, "\r\x1b[K%s … %s", p.title, what)
		return
	}
	fmt.Fprintf(p.to, "%s … %s\n", p.title, what)
}
