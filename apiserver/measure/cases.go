package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/kube-atrest/atrest/internal/measure"
)

// measured is one thing that users feel.
type measured struct {
	name, about string
	run         func(context.Context, *bench) error
	// operators' figures are of what an operator does, else they are of what users feel.
	operators bool
}

func cases() []measured {
	return []measured{
		{"start", "from the start of a server to ready, with Secrets under many DEKs and a plugin that answers Decrypt in 20 ms", starts, false},
		{"list", "LIST of all Secrets from etcd, not from the watch cache", lists, false},
		{"memory", "memory after many updates, and their pace, without a watch cache for Secrets", memory, false},
		{"migrate", "Secrets stored again through the API beside Secrets created, by as many clients", migration, true},
		{"audit", "atrest audit of ever more Secrets in etcd, and its memory", audits, true},
	}
}

// bench is what a case needs.
type bench struct {
	*lab
	scale
	*measure.Book
	sides []side
}

// Names of figures, but for the side.

func listName(s scale) measure.Name {
	return measure.Name{Case: "List", Params: fmt.Sprintf("secrets=%d", s.secrets)}
}

func startName(s scale) measure.Name {
	return measure.Name{Case: "Start", Params: fmt.Sprintf("secrets=%d/deks=%d", s.secrets, s.deks)}
}

func memoryName(s scale) measure.Name {
	return measure.Name{Case: "Memory", Params: fmt.Sprintf("writes=%d", s.writes)}
}

const (
	manyClients = 16
	// chunks is in how many parts the writes are done, after each of which memory is
	// looked at.
	chunks = 10
	// uncached keeps a server from answering for Secrets out of its watch cache.
	uncached = "--watch-cache-sizes=secrets#0"
)

func secretName(i int) string { return fmt.Sprintf("secret-%06d", i) }

func one(unit string, value float64) measure.Figure { return measure.Figure{Unit: unit, Value: value} }

// starts starts each side again and again. The first time is not measured: then a server
// makes its own objects.
func starts(ctx context.Context, b *bench) error {
	var places []*place
	for _, s := range b.sides {
		p, err := b.place(s, "start", b.slow)
		if err != nil {
			return err
		}
		if err := b.fill(ctx, p, b.secrets, b.deks); err != nil {
			return err
		}
		if _, err := b.start(ctx, p); err != nil {
			return err
		}
		places = append(places, p)
	}
	for round := range b.starts() {
		for _, p := range measure.InTurn(places, round) {
			figures, err := b.start(ctx, p)
			if err != nil {
				return err
			}
			b.Add(startName(b.scale).Of(p.side.name), figures...)
		}
	}
	return nil
}

// start starts a server, has it list all Secrets, and stops it.
func (b *bench) start(ctx context.Context, p *place) ([]measure.Figure, error) {
	unwrapped := b.slow.Decrypts.Load()
	sent, err := b.sent(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	s, err := p.launch(ctx)
	if err != nil {
		return nil, err
	}
	defer s.halt()
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	ready := time.Since(began)
	if err := s.list(ctx, b.secrets); err != nil {
		return nil, err
	}
	listed := time.Since(began)
	now, err := b.sent(ctx)
	return []measure.Figure{one(measure.NsPerOp, float64(ready)), one(listedNs, float64(listed)),
		one(decrypts, float64(b.slow.Decrypts.Load()-unwrapped)), one(etcdBytes, now-sent)}, err
}

// lists has each side list what it has stored itself.
func lists(ctx context.Context, b *bench) error {
	f, err := b.startFleet(ctx, b.sides, "list")
	if err != nil {
		return err
	}
	defer f.halt()
	for _, s := range f {
		err := s.each(ctx, b.secrets, func(ctx context.Context, i int) error {
			return s.create(ctx, secretName(i), data(uint64(i)))
		})
		if err != nil {
			return err
		}
		if err := s.stores(ctx, b.lab, secretName(0)); err != nil {
			return err
		}
		if err := s.list(ctx, b.secrets); err != nil {
			return err
		}
	}
	for round := range b.lists() {
		for _, s := range measure.InTurn(f, round) {
			cpu, began := s.cpu(), time.Now()
			if err := s.list(ctx, b.secrets); err != nil {
				return err
			}
			took := time.Since(began)
			b.Add(listName(b.scale).Of(s.side.name), one(measure.NsPerOp, float64(took)), one(measure.CPUNsPerOp, float64(s.cpu()-cpu)))
		}
	}
	for _, s := range f {
		name := listName(b.scale).Of(s.side.name)
		b.Add(name, one(p99Ns, measure.Quantile(b.Values(name, measure.NsPerOp), 0.99)))
	}
	return nil
}

// memory has each side write the same few Secrets again and again, one for each client so
// that no write is in the way of another, and looks at what stays in memory.
func memory(ctx context.Context, b *bench) error {
	f, err := b.startFleet(ctx, b.sides, "memory")
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
	}
	for chunk := range chunks {
		for _, s := range measure.InTurn(f, chunk) {
			if heaps[s], err = b.fatten(ctx, s, chunk, heaps[s]); err != nil {
				return err
			}
		}
		if err := b.compact(ctx); err != nil { // or etcd would have no room left
			return err
		}
	}
	for _, s := range f {
		b.Add(memoryName(b.scale).Of(s.side.name), one(heapBytes, heaps[s]), one(residentB, s.memory(vmRSS)))
	}
	return nil
}

// fatten does a chunk of writes and notes by how much memory has grown.
func (b *bench) fatten(ctx context.Context, s *server, chunk int, before float64) (heap float64, err error) {
	n := b.writes / chunks
	cpu, began := s.cpu(), time.Now()
	if err := s.each(ctx, n, func(ctx context.Context, i int) error { return s.write(ctx, chunk*n+i) }); err != nil {
		return 0, err
	}
	took, spent := time.Since(began), s.cpu()-cpu
	if heap, err = s.heap(ctx); err != nil {
		return 0, err
	}
	each := 1 / float64(n)
	b.Add(memoryName(b.scale).Of(s.side.name), one(measure.NsPerOp, float64(took)*each),
		one(measure.CPUNsPerOp, float64(spent)*each), one(heapPerOp, (heap-before)*each))
	return heap, nil
}

// write is an update that changes the data: one that changes nothing is not written.
func (s *server) write(ctx context.Context, i int) error {
	changed := make([]byte, kib)
	binary.BigEndian.PutUint64(changed, uint64(i)+1)
	binary.BigEndian.PutUint64(changed[8:], uint64(time.Now().UnixNano()))
	return s.update(ctx, target(i), changed)
}

func target(i int) string { return fmt.Sprintf("target-%d", i%manyClients) }
