package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// creates has each side create Secrets for a while, by one client and then by many.
func creates(ctx context.Context, b *bench) error {
	f, err := b.startFleet(ctx, b.sides, "create")
	if err != nil {
		return err
	}
	defer f.halt()
	for _, s := range f {
		if _, err := s.createFor(ctx, manyClients, b.slice/2, "warm"); err != nil {
			return err
		}
		if err := s.stores(ctx, b.lab, "warm-1"); err != nil {
			return err
		}
	}
	turns := 0
	for round := range b.rounds {
		if err := b.compact(ctx); err != nil {
			return err
		}
		for _, clients := range []int{oneClient, manyClients} {
			for _, s := range f.inTurn(round) {
				cpu, began := s.cpu(), time.Now()
				made, err := s.createFor(ctx, clients, b.slice, fmt.Sprintf("round%d-clients%d", round, clients))
				if err != nil {
					return err
				}
				each := 1 / float64(made)
				b.book.add(name{createGroup(clients), s.side.name}, made,
					figure{nsPerOp, float64(time.Since(began)) * each}, figure{cpuPerOp, float64(s.cpu()-cpu) * each})
				turns++
				b.told(turns, 2*b.rounds*len(f))
			}
		}
	}
	return nil
}

// createFor creates Secrets, by so many clients at once, until the time is over, and
// returns how many that were.
func (s *server) createFor(ctx context.Context, clients int, slice time.Duration, called string) (int, error) {
	var last atomic.Int64
	end := time.Now().Add(slice)
	g, ctx := errgroup.WithContext(ctx)
	for range clients {
		g.Go(func() error {
			for time.Now().Before(end) {
				i := last.Add(1)
				if err := s.create(ctx, fmt.Sprintf("%s-%d", called, i), data(uint64(i))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return int(last.Load()), err
}
