package reload

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// committing is a generation that has something to do when it takes over.
type committing struct {
	fakeGeneration
	commit func(swap func())
}

func (g *committing) Commit(swap func()) { g.commit(swap) }

func TestAGenerationIsToldToTakeOver(t *testing.T) {
	one := &fakeGeneration{name: "one"}
	s, _ := newSet(one)
	defer s.Close()
	var before, after string
	two := &committing{fakeGeneration: fakeGeneration{name: "two"}}
	two.commit = func(swap func()) {
		before = write(t, s, secrets)
		swap()
		after = write(t, s, secrets)
	}
	s.swap(two)
	require.Equal(t, "one:v", before)
	require.Equal(t, "two:v", after)
	require.Same(t, two, s.Current())
	require.Zero(t, two.closed.Load())
}

func TestAGenerationThatComesTooLateIsClosedWhenItHasCommitted(t *testing.T) {
	one := &fakeGeneration{name: "one"}
	s, _ := newSet(one)
	s.Close()
	late := &committing{fakeGeneration: fakeGeneration{name: "late"}}
	committed := 0
	late.commit = func(swap func()) {
		swap()
		committed++
		require.Zero(t, late.closed.Load(), "not before it has done what it has to do")
	}
	s.swap(late)
	require.Equal(t, 1, committed)
	require.EqualValues(t, 1, late.closed.Load())
	require.Same(t, one, s.Current())
	require.EqualValues(t, 1, one.closed.Load(), "what ran is closed once")
}
