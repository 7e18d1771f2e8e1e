// Package explore searches small worlds completely: every order in which anything in them can happen.
package explore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Move is something that can happen, and what the world is then. Wrong says what must not be in it.
type Move[S comparable] struct {
	Name  string
	To    S
	Wrong string
}

// Search is a search that came to its end: all states, and for each the one it was first reached
// from. Wrong is what must not be, and how it came to that.
type Search[S comparable] struct {
	Wrong string

	ids   map[S]int32
	from  []int32
	by    []string
	edges [][]int32
}

// most is how many states a world may have.
const most = 2_000_000

// All finds everything that can become of start. It stops at the first thing that is wrong.
func All[S comparable](start S, moves func(S) []Move[S]) *Search[S] {
	s := &Search[S]{ids: map[S]int32{start: 0}, from: []int32{-1}, by: []string{"start"}}
	states := []S{start}
	for id := 0; id < len(states); id++ {
		if id > most {
			panic("the world is too large to search")
		}
		var edges []int32
		for _, m := range moves(states[id]) {
			to, known := s.ids[m.To]
			if !known {
				to = int32(len(states))
				s.ids[m.To] = to
				states, s.from, s.by = append(states, m.To), append(s.from, int32(id)), append(s.by, m.Name)
			}
			edges = append(edges, to)
			if m.Wrong != "" {
				s.Wrong = fmt.Sprintf("%s\n after %s, which followed\n%s", m.Wrong, m.Name, s.trail(int32(id)))
				return s
			}
		}
		s.edges = append(s.edges, edges)
	}
	return s
}

// States is how many were looked at.
func (s *Search[S]) States() int { return len(s.edges) }

// trail is how a state was reached.
func (s *Search[S]) trail(id int32) string {
	if id <= 0 {
		return "  start"
	}
	return s.trail(s.from[id]) + "\n  " + s.by[id]
}

// Stuck is a state from which none of the ends can still be reached, by how it was reached.
func (s *Search[S]) Stuck(end func(S) bool) (trail string, found bool) {
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

// RequireSound fails t if anything is wrong, or an end cannot be reached from everywhere.
func (s *Search[S]) RequireSound(t *testing.T, end func(S) bool) {
	t.Helper()
	require.Empty(t, s.Wrong)
	trail, found := s.Stuck(end)
	require.False(t, found, "no end can be reached after\n%s", trail)
	edges := 0
	for _, e := range s.edges {
		edges += len(e)
	}
	t.Logf("%d states with %d ways between them, all of them sound", len(s.edges), edges)
}

// Long skips a long search under the race detector. It is made without it.
func Long(t *testing.T) {
	t.Helper()
	if Raced {
		t.Skip("a search by one goroutine")
	}
}
