package node

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Asker asks one apiserver of this node what it has in effect. It is called by one goroutine at
// a time.
type Asker interface {
	Name() string
	Ask(context.Context) (Answer, error)
}

// Answer is what an apiserver told of itself.
type Answer struct {
	// Process names the process, if it has a name, and Config is the hash of the configuration
	// that it has in effect.
	Process, Config string
}

// apiserver keeps what one told, and since when.
type apiserver struct {
	asker Asker
	clk   clock.PassiveClock
	// placed counts how often the file changed: who was asked before the last time may have
	// answered for the former one.
	placed *atomic.Int64

	last Apiserver
	gen  int64
	who  string
}

// ask asks it once. It is for one goroutine.
func (a *apiserver) ask(ctx context.Context) toldApiserver {
	gen, begun := a.placed.Load(), a.clk.Now()
	answer, err := a.asker.Ask(ctx)
	next := Apiserver{Name: a.asker.Name(), At: begun}
	if err != nil {
		next.Problem = err.Error()
	} else {
		next.Config, next.Since = answer.Config, a.clk.Now()
	}
	if err == nil && a.last.Problem == "" && a.gen == gen && a.who == answer.Process && a.last.Config == next.Config && !a.last.Since.IsZero() {
		next.Since = a.last.Since
	}
	a.last, a.gen, a.who = next, gen, answer.Process
	return toldApiserver{next, gen}
}

// toldApiserver is an answer and how often the file had changed when it was asked for.
type toldApiserver struct {
	Apiserver
	gen int64
}

// of is the answer as it counts now that the file changed so many times. One from before tells nothing.
func (t toldApiserver) of(name string, placed int64) Apiserver {
	if t.Problem == "" && t.gen != placed {
		return Apiserver{Name: name}
	}
	a := t.Apiserver
	a.Name = name
	return a
}

// within is how old an answer may be that comes every so often: one may be missed, and take its
// time.
func within(every time.Duration) time.Duration { return 3*every + slowest }

// slowest is how long an apiserver may take to answer.
const slowest = 20 * time.Second
