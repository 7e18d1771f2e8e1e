package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/term"
)

// isTerminal reports whether somebody would see what is written to w.
func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}

// columns is how wide a terminal is, 0 if it does not tell.
func columns(w io.Writer) int {
	file, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// bar draws progress on a terminal, over and over on one line.
type bar struct {
	to    io.Writer
	start time.Time
	drawn time.Time
}

const (
	barWidth = 30
	redraw   = 100 * time.Millisecond
)

// progress gives what to call as a walk goes on, and at its end. It draws on a
// terminal only.
func progress(to io.Writer) (on func(done, total int64), end func()) {
	if !isTerminal(to) {
		return func(int64, int64) {}, func() {}
	}
	b := &bar{to: to, start: time.Now()}
	return b.on, func() { fmt.Fprint(to, "\r\x1b[K") }
}

func (b *bar) on(done, total int64) {
	now := time.Now()
	if now.Sub(b.drawn) < redraw {
		return
	}
	b.drawn = now
	fmt.Fprint(b.to, "\r\x1b[K"+barText(done, total, now.Sub(b.start)))
}

// barText is one line: the bar, the objects, the rate and the time left.
func barText(done, total int64, took time.Duration) string {
	rate := float64(done) / max(took.Seconds(), 0.001)
	left := time.Duration(float64(max(total-done, 0)) / max(rate, 0.001) * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("%s  %d of %s, %.0f/s, %s left", drawnPart(done, total), done, counted(int(total), "object"), rate, left)
}

// drawnPart is the bar itself.
func drawnPart(done, total int64) string {
	part := 1.0
	if total > 0 {
		part = min(float64(done)/float64(total), 1)
	}
	full := int(part * barWidth)
	return fmt.Sprintf("[%s%s] %3.0f%%", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), part*100)
}
