package keys_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// move is something that can happen, and what the world is then. wrong says what must not
// be in it.
type move[S comparable] struct {
	name  string
	to    S
	wrong string
}

// search is a search that came to its end: all states, and for each the one it was first
// reached from.
type search[S comparable] struct {
	ids   map[S]int32
	from  []int32
	by    []string
	edges [][]int32
	wrong string
}

// explore finds everything that can become of start. It stops at the first thing that is
// wrong.
func explore[S comparable](start S, moves func(S) []move[S]) *search[S] {
	s := &search[S]{ids: map[S]int32{start: 0}, from: []int32{-1}, by: []string{"start"}}
	states := []S{start}
	for id := 0; id < len(states); id++ {
		if id > 2_000_000 {
			panic("the world is too large to search")
		}
		var edges []int32
		for _, m := range moves(states[id]) {
			to, known := s.ids[m.to]
			if !known {
				to = int32(len(states))
				s.ids[m.to] = to
				states, s.from, s.by = append(states, m.to), append(s.from, int32(id)), append(s.by, m.name)
			}
			edges = append(edges, to)
			if m.wrong != "" {
				s.wrong = fmt.Sprintf("%s\n after %s, which followed\n%s", m.wrong, m.name, s.trail(int32(id)))
				return s
			}
		}
		s.edges = append(s.edges, edges)
	}
	return s
}

// trail is how a state was reached.
func (s *search[S]) trail(id int32) string {
	if id <= 0 {
		return "  start"
	}
	return s.trail(s.from[id]) + "\n  " + s.by[id]
}

// stuck is a state from which none of the ends can still be reached.
func (s *search[S]) stuck(end func(S) bool) (trail string, found bool) {
	back := make([][]int32, len(s.edges))
	for from, edges := range s.edges {
		for _, to := range edges {
			back[to] = append(back[to], int32(from))
		}
	}
	reaches := make([]bool, len(s.edges))
	var queue []int32
	for state, id := range s.ids {
		if end(state) {
			reaches[id] = true
			queue = append(queue, id)
		}
	}
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		for _, from := range back[id] {
			if !reaches[from] {
				reaches[from] = true
				queue = append(queue, from)
			}
		}
	}
	for id, ok := range reaches {
		if !ok {
			return s.trail(int32(id)), true
		}
	}
	return "", false
}

// searched skips a long search under the race detector, which has nothing to see in one
// goroutine. It is made without it.
func searched(t *testing.T) {
	if raced {
		t.Skip("a search by one goroutine")
	}
}

func requireSound[S comparable](t *testing.T, s *search[S], end func(S) bool) {
	t.Helper()
	require.Empty(t, s.wrong)
	trail, found := s.stuck(end)
	require.False(t, found, "no end can be reached after\n%s", trail)
	edges := 0
	for _, e := range s.edges {
		edges += len(e)
	}
	t.Logf("%d states with %d ways between them, all of them sound", len(s.edges), edges)
}
