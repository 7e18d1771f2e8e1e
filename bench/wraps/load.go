package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/internal/measure"
)

// Units of how long one call takes, of the calls of a round.
const (
	p50 = "p50-ns"
	p99 = "p99-ns"
)

// loads are the numbers of callers. An apiserver asks one after another, but when it starts.
var loads = []int{1, 16, 64}

// load is a loop whose calls are timed one by one.
type load struct {
	*measure.Loop
	times []time.Duration // a ring
	calls atomic.Int64
	tried bool // in the first round, which also finds how many calls fill a slice
}

var _ measure.Contestant = (*load)(nil)

// kept is how many calls are remembered; a slice has fewer.
const kept = 1 << 17

func newLoad(name measure.Name, callers int, do func() error) *load {
	l := &load{times: make([]time.Duration, kept)}
	l.Loop = &measure.Loop{Name: name, Goroutines: callers, Do: func() error {
		began := time.Now()
		err := do()
		took := time.Since(began)
		l.times[(l.calls.Add(1)-1)%kept] = took
		return err
	}}
	return l
}

// Round measures the loop, and how its calls lie: those at the end, which are of the measured
// run. Before it there is the same once more, to warm up.
func (l *load) Round(ctx context.Context, slice time.Duration, book *measure.Book) error {
	before := l.calls.Load()
	if err := l.Loop.Round(ctx, slice, book); err != nil {
		return err
	}
	now, part := l.calls.Load(), int64(2)
	if !l.tried {
		l.tried, part = true, 4
	}
	var took []float64
	for i := max(now-max((now-before)/part, 1), now-kept, 0); i < now; i++ {
		took = append(took, float64(l.times[i%kept]))
	}
	book.Add(l.Name, measure.Figure{Unit: p50, Value: measure.Quantile(took, .5)}, measure.Figure{Unit: p99, Value: measure.Quantile(took, .99)})
	return nil
}

// ops are what is measured, as sides call it.
var ops = []string{"wrap", "unwrap"}

// contestants are all loads of a store.
func contestants(ctx context.Context, s store, sides []side) (all []measure.Contestant, err error) {
	for _, callers := range loads {
		for _, op := range ops {
			for _, by := range sides {
				do, err := by.does(ctx, op)
				if err != nil {
					return nil, fmt.Errorf("%s, %w", s.name, err)
				}
				all = append(all, newLoad(nameOf(s.name, op, callers, by.name), callers, do))
			}
		}
	}
	return all, nil
}

func nameOf(store, op string, callers int, by string) measure.Name {
	return measure.Name{Case: store, Params: fmt.Sprintf("op=%s/callers=%d", op, callers), Side: by}
}
