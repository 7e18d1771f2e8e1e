package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	factWidth   = 72
	detailWidth = 11
	textWidth   = 100
	// On a terminal a wait is redrawn every second; in a log it is told after a second
	// and then rarely.
	tickInterval = time.Second
	logInterval  = 10 * time.Second
)

// detail is a line under a fact: what was seen, and its name.
type detail struct{ name, text string }

// report prints what holds and what does not. Its methods are called by one goroutine.
type report struct {
	out      io.Writer
	terminal bool
}

func (r *report) line(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// holds prints a fact that was seen to hold, how long that took, and what was seen.
func (r *report) holds(fact string, took time.Duration, seen []detail) {
	r.line("%s %-*s %8s", r.colour("32", "  ok "), factWidth, fact, roughly(took))
	for _, d := range seen {
		name := d.name
		for _, line := range wrap(d.text, textWidth) {
			r.line("       %s %s", r.colour("2", fmt.Sprintf("%-*s", detailWidth, name)), line)
			name = ""
		}
	}
	r.line("")
}

// fails prints a fact that did not hold, and why.
func (r *report) fails(fact string, err error) {
	r.line("%s %s", r.colour("31", "fail "), fact)
	r.line("       %v", err)
	r.line("")
}

// during does work and, when that takes more than a second, says what is being waited
// for.
func (r *report) during(what string, work func() error) error {
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() { r.tick(what, done) })
	err := work()
	close(done)
	ticking.Wait()
	return err
}

func (r *report) tick(what string, done <-chan struct{}) {
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for seconds := 1; ; seconds++ {
		select {
		case <-done:
			if r.terminal && seconds > 1 {
				fmt.Fprint(r.out, "\r\x1b[K")
			}
			return
		case <-ticker.C:
		}
		waited := time.Duration(seconds) * tickInterval
		switch {
		case r.terminal:
			fmt.Fprintf(r.out, "\r\x1b[K  ..  %s %s", what, r.colour("2", roughly(waited)))
		case seconds == 1 || waited%logInterval == 0:
			r.line("  ..  %s (%s)", what, roughly(waited))
		}
	}
}

// colour wraps text in an ANSI code, on a terminal only.
func (r *report) colour(code, text string) string {
	if !r.terminal {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// wrap breaks text between words into lines of at most width bytes; a longer word has a
// line of its own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// roughly is a duration to three digits or so: nobody reads more.
func roughly(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	default:
		return d.Round(time.Second).String()
	}
}
