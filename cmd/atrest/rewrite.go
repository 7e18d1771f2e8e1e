package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/kube-atrest/atrest/operate/migrate"
)

// rewriteFlags say how objects are rewritten.
type rewriteFlags struct {
	state    string
	qps      float64
	workers  int
	pageSize int64
	patience time.Duration
}

func (f *rewriteFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.state, "state", "", "folder for how far each resource has come; without it the next run begins at the beginning")
	flags.Float64Var(&f.qps, "qps", 100, "objects patched in a second at most; 0 is no limit")
	flags.IntVar(&f.workers, "workers", 4, "patches under way at once, 1 to 64")
	flags.Int64Var(&f.pageSize, "page-size", 500, "objects listed at once, 1 to 10000; memory grows with it, by some kilobytes for each")
	flags.DurationVar(&f.patience, "patience", 2*time.Minute, "how long an apiserver that is away or busy is waited for")
}

func (f *rewriteFlags) check() error {
	switch {
	case f.qps != 0 && !(f.qps >= 0.001):
		return usagef("flag --qps is %v: at least 0.001, or 0 for no limit", f.qps)
	case f.workers < 1 || f.workers > 64:
		return usagef("flag --workers is %d: 1 to 64", f.workers)
	case f.patience <= 0:
		return usagef("flag --patience is %s: it has to be over 0", f.patience)
	case f.pageSize < 1 || f.pageSize > 10_000:
		return usagef("flag --page-size is %d: 1 to 10000", f.pageSize)
	}
	return nil
}

// options are what the flags say.
func (f *rewriteFlags) options() migrate.Options {
	return migrate.Options{PerSecond: f.qps, Workers: f.workers, PageSize: f.pageSize, Patience: f.patience}
}

// lineEvery is the time between two lines about a run that nobody watches.
const lineEvery = 10 * time.Second

// rewriting gives what to call as the rewriting of a resource goes on, and at its
// end: on a terminal a line that is drawn over and over, else lines now and then.
// Both leave one line that says what was done.
func rewriting(to io.Writer, resource string) (show func(migrate.Progress), end func()) {
	terminal := isTerminal(to)
	var last migrate.Progress
	var drawn time.Duration
	show = func(p migrate.Progress) {
		began := p.Waiting != "" && last.Waiting == ""
		last = p
		if began && terminal {
			fmt.Fprint(to, "\r\x1b[K")
		}
		switch {
		case began:
			fmt.Fprintf(to, "%s %s: waiting for the apiserver %s\n", now(), resource, printable(p.Waiting))
		case terminal:
			fmt.Fprint(to, "\r\x1b[K"+resource+" "+rewritingBar(p))
		case p.Elapsed-drawn >= lineEvery:
			drawn = p.Elapsed
			fmt.Fprintf(to, "%s %s: %s\n", now(), resource, rewritingText(p))
		}
	}
	return show, func() {
		if terminal {
			fmt.Fprint(to, "\r\x1b[K")
		}
		if last.Elapsed > 0 {
			c := last.Counts
			fmt.Fprintf(to, "%s %s: %d rewritten, %d unchanged, %d gone, %d failed, in %s\n",
				now(), resource, c.Rewritten, c.Unchanged, c.Gone, c.Failed, last.Elapsed.Round(time.Second))
		}
	}
}

func rewritingBar(p migrate.Progress) string {
	return fmt.Sprintf("%s  %s", drawnPart(p.Counts.Seen, p.Total), rewritingText(p))
}

// rewritingText tells how far it is, how fast, and for how long it goes on.
func rewritingText(p migrate.Progress) string {
	left := "time left not known"
	switch {
	case p.Waiting != "":
		left = "waiting for the apiserver"
	case p.Left >= 0:
		left = p.Left.Round(time.Second).String() + " left"
	}
	failed := ""
	if p.Counts.Failed > 0 {
		failed = fmt.Sprintf(", %d failed", p.Counts.Failed)
	}
	return fmt.Sprintf("%d of %d objects, %d rewritten%s, %.0f/s, %s", p.Counts.Seen, max(p.Total, p.Counts.Seen), p.Counts.Rewritten, failed, p.PerSecond, left)
}
