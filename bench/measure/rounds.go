package measure

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// Contestant is what is measured.
type Contestant interface {
	// Round measures once, for about as long as slice if that can be chosen.
	Round(ctx context.Context, slice time.Duration) ([]Measurement, error)
}

// Plan is how long to measure.
type Plan struct {
	Rounds int
	Slice  time.Duration // of one contestant in one round
}

// Interleave measures every contestant once in each round and writes what they
// gave into book. after is called when one of them is done.
func (p Plan) Interleave(ctx context.Context, contestants []Contestant, book *Book, after func()) error {
	for round := range p.Rounds {
		for _, c := range contestants {
			if err := ctx.Err(); err != nil {
				return err
			}
			runtime.GC() // nobody pays for what another left behind
			found, err := c.Round(ctx, p.Slice)
			if err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
			for _, m := range found {
				book.Add(m)
			}
			after()
		}
	}
	return nil
}

// ballast makes the heap of a program that measures as large as that of a small
// apiserver. Garbage is collected when the heap has grown by its own size, and
// in a heap of nothing that would be most of what is measured. Nobody reads it,
// so it takes no memory.
var ballast []byte

// Settle prepares the process for measuring.
func Settle() {
	ballast = make([]byte, 64<<20)
	runtime.GC()
}
