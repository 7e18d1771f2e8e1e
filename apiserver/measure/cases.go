package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// measured is one thing that users feel.
type measured struct {
	name, about string
	run         func(context.Context, *bench) error
}

func cases() []measured {
	return []measured{
		{"start", "from the start of a server to ready, with Secrets under many DEKs and a plugin that answers Decrypt in 20 ms", starts},
		{"create", "creates a second, of Secrets of 1 KiB, with 1 client and with 16", creates},
		{"list", "LIST of all Secrets from etcd, not from the watch cache", lists},
		{"memory", "memory after many updates, without a watch cache for Secrets", memory},
	}
}

// bench is what a case needs.
type bench struct {
	*lab
	scale
	sides []side
	book  *book
	// told is told how far the case is.
	told func(done, of int)
}

// Names of groups of figures.
func createGroup(clients int) string { return fmt.Sprintf("Create/clients=%d", clients) }
func listGroup(s scale) string       { return fmt.Sprintf("List/secrets=%d", s.secrets) }
func startGroup(s scale) string      { return fmt.Sprintf("Start/secrets=%d/deks=%d", s.secrets, s.deks()) }
func memoryGroup(s scale) string     { return fmt.Sprintf("Memory/writes=%d", s.writes) }

const (
	// oneClient and manyClients are those of the creates.
	oneClient   = 1
	manyClients = 16
	// chunks is in how many parts the writes are done, after each of which memory is looked at.
	chunks = 10
	// uncached keeps a server from answering for Secrets out of its watch cache.
	uncached = "--watch-cache-sizes=secrets#0"
)

// starts starts each side again and again. The first time is not measured: then a server makes its own objects.
func starts(ctx context.Context, b *bench) error {
	var places []*place
	for _, s := range b.sides {
		p, err := b.place(s, "start", b.slow)
		if err != nil {
			return err
		}
		if err := b.fill(ctx, p, b.secrets); err != nil {
			return err
		}
		if err := b.start(ctx, p, func(time.Duration, time.Duration, int64) {}); err != nil {
			return err
		}
		places = append(places, p)
	}
	for round := range b.starts() {
		for i := range places {
			p := places[(round+i)%len(places)]
			err := b.start(ctx, p, func(ready, listed time.Duration, calls int64) {
				b.book.add(name{startGroup(b.scale), p.side.name}, 1,
					figure{nsPerOp, float64(ready)}, figure{listedNs, float64(listed)}, figure{decrypts, float64(calls)})
			})
			if err != nil {
				return err
			}
			b.told(round*len(places)+i+1, b.starts()*len(places))
		}
	}
	return nil
}

// start starts a server, has it list all Secrets, and stops it.
func (b *bench) start(ctx context.Context, p *place, took func(ready, listed time.Duration, calls int64)) error {
	before, began := b.slow.decrypts.Load(), time.Now()
	s, err := p.launch(ctx)
	if err != nil {
		return err
	}
	defer s.halt()
	if err := s.ready(ctx); err != nil {
		return err
	}
	ready := time.Since(began)
	if _, err := s.list(ctx); err != nil {
		return err
	}
	took(ready, time.Since(began), b.slow.decrypts.Load()-before)
	return s.holds(ctx, b.secrets)
}

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

// createFor creates Secrets, by so many clients at once, until the time is over, and returns how many that were.
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
			if size != sizes[s] {
				return fmt.Errorf("a LIST by %s is %d bytes long, another one %d", s.side.name, size, sizes[s])
			}
			b.book.add(name{listGroup(b.scale), s.side.name}, 1, figure{nsPerOp, float64(took)}, figure{cpuPerOp, float64(s.cpu() - cpu)})
		}
		b.told(round+1, b.lists())
	}
	return nil
}

// each does work for 0 to n-1, by many clients at once. A client has each of its numbers to itself: i modulo
// manyClients is never worked on twice at once.
func (s *server) each(ctx context.Context, n int, work func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for client := range manyClients {
		g.Go(func() error {
			for i := client; i < n; i += manyClients {
				if err := work(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// memory has each side write the same few Secrets again and again, one for each client so that no write is in
// the way of another, and looks at what stays in memory.
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
