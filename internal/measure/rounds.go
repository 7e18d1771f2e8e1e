package measure

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// Contestant is what is measured.
type Contestant interface {
	// Round measures once, for about as long as slice if that can be chosen. It
	// begins to measure after a collection of garbage, so that nobody pays for
	// what another left behind.
	Round(ctx context.Context, slice time.Duration, book *Book) error
	// Group is the same for those that are compared with each other.
	Group() string
}

// Group is the name without the side.
func (n Name) Group() string { return n.Case + "/" + n.Params }

// Once is something that is done once a round and measures itself.
type Once struct {
	Name
	Do func(ctx context.Context, book *Book) error
}

var _ Contestant = (*Once)(nil)

// Round does it.
func (o *Once) Round(ctx context.Context, _ time.Duration, book *Book) error {
	runtime.GC()
	return o.Do(ctx, book)
}

// Plan is how long to measure.
type Plan struct {
	Rounds int
	Slice  time.Duration // of one contestant in one round
	// Collects has garbage collected when the runtime thinks fit, as in a
	// server. Else it is collected between the contestants and never while one
	// is measured: a slice is so short that a collection would fall into one
	// contestant's and not into another's.
	Collects bool
	// Before is called before each round; it may be nil.
	Before func(context.Context) error
}

// Interleave measures every contestant once in each round and writes what they
// gave into book.
func (p Plan) Interleave(ctx context.Context, contestants []Contestant, book *Book) error {
	if !p.Collects {
		percent := debug.SetGCPercent(-1)
		defer debug.SetGCPercent(percent)
	}
	for round := range p.Rounds {
		if p.Before != nil {
			if err := p.Before(ctx); err != nil {
				return fmt.Errorf("before round %d: %w", round+1, err)
			}
		}
		for _, c := range inTurn(contestants, round) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := c.Round(ctx, p.Slice, book); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
		}
	}
	return nil
}

// inTurn has another one of each group go first in each round: to come after
// somebody slow, or after values of another size, is an advantage or the reverse.
func inTurn(contestants []Contestant, round int) []Contestant {
	var order []Contestant
	for len(contestants) > 0 {
		n := 1
		for n < len(contestants) && contestants[n].Group() == contestants[0].Group() {
			n++
		}
		order = append(order, InTurn(contestants[:n], round)...)
		contestants = contestants[n:]
	}
	return order
}

// InTurn has another one of all go first in each round.
func InTurn[C any](all []C, round int) []C {
	first := round % len(all)
	return append(append([]C{}, all[first:]...), all[:first]...)
}

// ballast makes the heap of a program that measures as large as that of a small
// apiserver. Garbage is collected when the heap has grown by its own size, and
// in a heap of nothing that would be most of what is measured. Nobody reads it,
// so it takes no memory.
//
//lint:ignore U1000 it is there to be there
var ballast []byte

// Settle prepares the process for measuring.
func Settle() {
	ballast = make([]byte, 64<<20)
	runtime.GC()
}
