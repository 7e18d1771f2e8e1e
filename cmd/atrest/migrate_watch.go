package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/operate/migrate"
	"github.com/kube-atrest/atrest/operate/reencrypt"
)

// watcher tells how a migration goes, on standard error or as events.
type watcher struct {
	streams
	events bool
}

func (m *migrateCommand) watcher() watcher { return watcher{m.streams, m.output.events()} }

// tellPlan tells what is rewritten, before it is.
func (m *migrateCommand) tellPlan(f *reencrypt.Result) error {
	switch {
	case m.output.events():
		return writeEvent(m.out, "plan", struct {
			ToRewrite []reencrypt.ToRewrite `json:"toRewrite"`
		}{f.ToRewrite})
	case m.output == "table": // else the result is one document
		return printPlan(m.out, f)
	}
	return nil
}

func (w watcher) Writing(apiservers []string) {
	if !w.event("canaries", canariesEvent{apiservers}) {
		w.line("each of %s writes an object, to see that all is as they say", strings.Join(apiservers, ", "))
	}
}

func (w watcher) Rewriting(resource string) (show func(migrate.Progress), end func()) {
	if !w.events {
		return rewriting(w.err, resource)
	}
	var last migrate.Progress
	var told time.Duration
	show = func(p migrate.Progress) {
		began := p.Waiting != "" && last.Waiting == ""
		if last = p; began || p.Elapsed-told >= lineEvery {
			told = p.Elapsed
			w.event("rewriting", rewritingOf(resource, p))
		}
	}
	return show, func() { w.event("rewritten", rewrittenEvent{resource, last.Counts}) }
}

func (w watcher) Left(resource, to string) {
	if !w.event("left", migrationEvent{Resource: resource, Migration: to}) {
		w.line("%s: left to storageversionmigration %s", resource, to)
	}
}

func (w watcher) Waiting(resource, to string, waited time.Duration, running bool) {
	if w.event("waiting", migrationEvent{resource, to, running, waited.Seconds()}) {
		return
	}
	what := "is not taken up yet"
	if running {
		what = "is running"
	}
	w.line("%s: storageversionmigration %s %s, after %s", resource, to, what, waited.Round(time.Second))
}

func (w watcher) Failed(problem string) {
	w.event("problem", problemEvent{problem})
	w.warn("%s", printable(problem))
}

func (w watcher) line(format string, args ...any) {
	fmt.Fprintf(w.err, "%s %s\n", now(), printable(fmt.Sprintf(format, args...)))
}

// event tells something as one, and reports whether that is how it is told.
func (w watcher) event(name string, v any) bool {
	if w.events {
		_ = writeEvent(w.out, name, v) // nobody reads it any more
	}
	return w.events
}
