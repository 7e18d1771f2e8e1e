package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// memory has each side write the same few Secrets again and again, one for each client so
// that no write is in the way of another, and looks at what stays in memory.
func memory(ctx context.Context, b *bench) error {
	f, err := b.startFleet(ctx, b.sides, "memory", uncached)
	if err != nil {
		return err
	}
	defer f.halt()
	heaps := map[*server]float64{}
	for _, s := range f {
		if err := s.each(ctx, manyClients, func(ctx context.Context, i int) error { return s.create(ctx, target(i), data(0)) }); err != nil {
			return err
		}
		if err := s.each(ctx, b.writes/chunks/10, s.write); err != nil { // what is made once is made now
			return err
		}
		if heaps[s], err = s.heap(ctx); err != nil {
			return err
		}
		b.book.add(name{memoryGroup(b.scale), s.side.name}, 1,
			figure{wroteSoFar, 0}, figure{heapBytes, heaps[s]}, figure{residentB, s.resident()})
	}
	for chunk := range chunks {
		for i, s := range f.inTurn(chunk) {
			if err := b.fatten(ctx, s, chunk, heaps); err != nil {
				return err
			}
			b.told(chunk*len(f)+i+1, chunks*len(f))
		}
		if err := b.compact(ctx); err != nil { // or etcd would have no room left
			return err
		}
	}
	return nil
}

// fatten does a chunk of writes and notes by how much memory has grown.
func (b *bench) fatten(ctx context.Context, s *server, chunk int, heaps map[*server]float64) error {
	n := b.writes / chunks
	err := s.each(ctx, n, func(ctx context.Context, i int) error { return s.write(ctx, chunk*n+i) })
	if err != nil {
		return err
	}
	heap, err := s.heap(ctx)
	if err != nil {
		return err
	}
	b.book.add(name{memoryGroup(b.scale), s.side.name}, n, figure{wroteSoFar, float64((chunk + 1) * n)},
		figure{heapBytes, heap}, figure{residentB, s.resident()}, figure{heapPerOp, (heap - heaps[s]) / float64(n)})
	heaps[s] = heap
	return nil
}

// write is an update that changes the data: one that changes nothing is not written.
func (s *server) write(ctx context.Context, i int) error {
	changed := make([]byte, kib)
	binary.BigEndian.PutUint64(changed, uint64(i)+1)
	binary.BigEndian.PutUint64(changed[8:], uint64(time.Now().UnixNano()))
	return s.update(ctx, target(i), changed)
}

func target(i int) string { return fmt.Sprintf("target-%d", i%manyClients) }
