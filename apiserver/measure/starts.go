package main

import (
	"context"
	"time"
)

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
		if err := b.start(ctx, p, func(...figure) {}); err != nil {
			return err
		}
		places = append(places, p)
	}
	for round := range b.starts() {
		for i := range places {
			p := places[(round+i)%len(places)]
			err := b.start(ctx, p, func(figures ...figure) {
				b.book.add(name{startGroup(b.scale), p.side.name}, 1, figures...)
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
func (b *bench) start(ctx context.Context, p *place, took func(...figure)) error {
	unwrapped := b.slow.decrypts.Load()
	sent, err := b.sent(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
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
	listed := time.Since(began)
	unwrapped = b.slow.decrypts.Load() - unwrapped
	now, err := b.sent(ctx)
	if err != nil {
		return err
	}
	took(figure{nsPerOp, float64(ready)}, figure{listedNs, float64(listed)}, figure{decrypts, float64(unwrapped)}, figure{etcdBytes, now - sent})
	return s.holds(ctx, b.secrets)
}
