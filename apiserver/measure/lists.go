package main

import (
	"context"
	"fmt"
	"time"
)

// lists has each side list what it has stored itself.
func lists(ctx context.Context, b *bench) error {
	f, err := b.startFleet(ctx, b.sides, "list", uncached)
	if err != nil {
		return err
	}
	defer f.halt()
	sizes := map[*server]int64{}
	for _, s := range f {
		err := s.each(ctx, b.secrets, func(ctx context.Context, i int) error {
			return s.create(ctx, fmt.Sprintf("secret-%06d", i), data(uint64(i)))
		})
		if err != nil {
			return err
		}
		if err := s.holds(ctx, b.secrets); err != nil {
			return err
		}
		if sizes[s], err = s.list(ctx); err != nil {
			return err
		}
	}
	for round := range b.lists() {
		for _, s := range f.inTurn(round) {
			cpu, began := s.cpu(), time.Now()
			size, err := s.list(ctx)
			took := time.Since(began)
			if err != nil {
				return err
			}
			if size < sizes[s] { // it grows with the digits of etcd's revision
				return fmt.Errorf("a LIST by %s is %d bytes long, an earlier one %d", s.side.name, size, sizes[s])
			}
			b.book.add(name{listGroup(b.scale), s.side.name}, 1, figure{nsPerOp, float64(took)}, figure{cpuPerOp, float64(s.cpu() - cpu)})
		}
		b.told(round+1, b.lists())
	}
	return nil
}
