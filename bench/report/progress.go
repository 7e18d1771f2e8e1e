package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progress tells how far a case is: on a terminal all the time, elsewhere when
// the case begins and ends.
type progress struct {
	to       io.Writer
	title    string
	live     bool
	began    time.Time
	told     time.Time
	done, of int
}

func newProgress(to io.Writer, title string) *progress {
	p := &progress{to: to, title: title, began: time.Now()}
	if f, ok := to.(*os.File); ok {
		p.live = term.IsTerminal(int(f.Fd()))
	}
	p.tell("setting up")
	return p
}

func (p *progress) expect(n int) {
	p.of, p.began = n, time.Now()
}

func (p *progress) step() {
	p.done++
	if !p.live || time.Since(p.told) < 200*time.Millisecond {
		return
	}
	left := time.Since(p.began) / time.Duration(p.done) * time.Duration(p.of-p.done)
	p.tell(fmt.Sprintf("%d%%, %s left", 100*p.done/p.of, left.Round(time.Second)))
}

func (p *progress) end(how string) {
	p.tell(fmt.Sprintf("%s in %s", how, time.Since(p.began).Round(100*time.Millisecond)))
	if p.live {
		fmt.Fprintln(p.to)
	}
}

func (p *progress) tell(what string) {
	p.told = time.Now()
	if p.live {
		fmt.Fprintf(p.to, "\r\x1b[K%s … %s", p.title, what)
		return
	}
	fmt.Fprintf(p.to, "%s … %s\n", p.title, what)
}
