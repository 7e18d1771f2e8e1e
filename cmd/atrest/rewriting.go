package main

import (
	"fmt"
	"io"
	"time"

	"github.com/kube-atrest/atrest/operate/migrate"
)

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
		last = p
		switch {
		case terminal:
			fmt.Fprint(to, "\r\x1b[K"+resource+" "+rewritingBar(p))
		case p.Elapsed-drawn >= lineEvery:
			drawn = p.Elapsed
			fmt.Fprintf(to, "%s: %s\n", resource, rewritingText(p))
		}
	}
	return show, func() {
		if terminal {
			fmt.Fprint(to, "\r\x1b[K")
		}
		if last.Elapsed > 0 {
			c := last.Counts
			fmt.Fprintf(to, "%s: %d rewritten, %d unchanged, %d gone, %d failed, in %s\n",
				resource, c.Rewritten, c.Unchanged, c.Gone, c.Failed, last.Elapsed.Round(time.Second))
		}
	}
}

func rewritingBar(p migrate.Progress) string {
	return fmt.Sprintf("%s  %s", drawnPart(p.Counts.Seen, p.Total), rewritingText(p))
}

// rewritingText tells how far it is, how fast, and for how long it goes on.
func rewritingText(p migrate.Progress) string {
	left := "time left not known"
	if p.Left >= 0 {
		left = p.Left.Round(time.Second).String() + " left"
	}
	return fmt.Sprintf("%d of %d objects, %d rewritten, %.0f/s, %s", p.Counts.Seen, max(p.Total, p.Counts.Seen), p.Counts.Rewritten, p.PerSecond, left)
}
