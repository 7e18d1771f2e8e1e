package main

import (
	"context"
	"sync"
)

// side is one way of keeping objects at rest.
type side struct {
	name     string
	program  string
	encrypts bool
}

// The names of the sides.
const (
	ours  = "atrest"
	stock = "kube-apiserver"
	none  = "none"
)

func sides() []side {
	return []side{{ours, atrestServer, true}, {stock, stockServer, true}, {none, stockServer, false}}
}

// fleet is a server of every side, on which a case takes turns.
type fleet []*server

// startFleet starts a server of every side at once and waits until all are ready.
func (l *lab) startFleet(ctx context.Context, sides []side, name string, flags ...string) (fleet, error) {
	var f fleet
	for _, s := range sides {
		p, err := l.place(s, name, l.quick, flags...)
		if err == nil {
			var one *server
			if one, err = p.launch(ctx); err == nil {
				f = append(f, one)
			}
		}
		if err != nil {
			f.halt()
			return nil, err
		}
	}
	for _, s := range f {
		if err := s.ready(ctx); err != nil {
			f.halt()
			return nil, err
		}
	}
	return f, nil
}

// halt stops all of them.
func (f fleet) halt() {
	var ended sync.WaitGroup
	for _, s := range f {
		ended.Go(s.halt)
	}
	ended.Wait()
}

// inTurn has another one go first in each round.
func (f fleet) inTurn(round int) fleet {
	first := round % len(f)
	return append(append(fleet{}, f[first:]...), f[:first]...)
}
