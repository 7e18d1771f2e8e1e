package measure

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func once(group, side string, do func()) *Once {
	return &Once{Name{Case: group, Side: side}, func(context.Context, *Book) error { do(); return nil }}
}

func TestNobodyIsInterruptedByACollectionUnlessThePlanSaysSo(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for collects, want := range map[bool]int{false: -1, true: 100} {
		var percent int
		looker := once("x", "looker", func() { percent = debug.SetGCPercent(-1); debug.SetGCPercent(percent) })
		require.NoError(t, Plan{Rounds: 1, Collects: collects}.Interleave(t.Context(), []Contestant{looker}, NewBook()))
		require.Equal(t, want, percent)
		require.Equal(t, 100, debug.SetGCPercent(100), "it goes on as before")
	}
}

func TestEveryRoundBeginsElsewhereOnTheStack(t *testing.T) {
	l := &Loop{Do: func() error { return nil }}
	seen := map[int]bool{}
	for range 20 {
		seen[l.depth()] = true
		require.NoError(t, l.Round(t.Context(), time.Microsecond, NewBook()))
	}
	require.Len(t, seen, 20)
}

func TestALoopDoesAllOperationsAndEndsWithTheFirstError(t *testing.T) {
	done := make(chan struct{}, 100)
	l := &Loop{Name: Name{"Write", "size=1", "ours"}, Goroutines: 3, Do: func() error { done <- struct{}{}; return nil }}
	_, err := l.Run(10)
	require.NoError(t, err)
	require.Len(t, done, 10)

	l.Do = func() error { return errors.New("no ink") }
	require.ErrorContains(t, l.Round(t.Context(), time.Microsecond, NewBook()), "Write size=1, ours: no ink")
}

func TestEveryRoundBeginsWithAnotherOfTheGroup(t *testing.T) {
	var order []string
	side := func(group, name string) Contestant {
		return once(group, name, func() { order = append(order, group+name) })
	}
	contestants := []Contestant{side("x", "1"), side("x", "2"), side("x", "3"), side("y", "1"), side("y", "2")}
	require.NoError(t, Plan{Rounds: 3}.Interleave(t.Context(), contestants, NewBook()))
	require.Equal(t, strings.Fields("x1 x2 x3 y1 y2  x2 x3 x1 y2 y1  x3 x1 x2 y1 y2"), order)
}

func TestTheSpreadIsOfRatiosWithinARound(t *testing.T) {
	book, n := NewBook(), Name{Case: "Write", Params: "size=1024/op=write"}
	for _, drift := range []float64{1, 2, 1, 2, 1} { // the machine was twice as slow in every second round
		book.Add(n.Of("a"), Figure{NsPerOp, 300 * drift}, Figure{AllocsPerOp, 1})
		book.Add(n.Of("b"), Figure{NsPerOp, 100 * drift})
	}
	table := book.Table(NsPerOp)
	require.Equal(t, Spread{5, 3, 3, 3, 3, 3}, table.Ratio(n.Of("a"), "b", NsPerOp))
	require.InDelta(t, 1./3, table.Ratio(n.Of("b"), "a", NsPerOp).High, 1e-9, "the other way round")
	require.Zero(t, table.Ratio(n.Of("a"), "c", NsPerOp))
	require.Zero(t, table.Ratio(n.Of("a"), "b", AllocsPerOp), "not a unit of ratios")
	require.Equal(t, Spread{5, 300, 300, 300, 600, 600}, table.Of(n.Of("a"), NsPerOp))
	require.Equal(t, Spread{}, SpreadOf(nil))
	require.Equal(t, Spread{4, 1.3, 1.75, 2.5, 3.25, 3.7}, SpreadOf([]float64{4, 1, 3, 2}))
	require.Equal(t, []float64{2, 3}, Divide([]float64{4, 1, 9}, []float64{2, 0, 3}), "nothing is divided by 0")
}

func TestATableIsReadAsItWasWritten(t *testing.T) {
	book := NewBook()
	for _, params := range []string{"size=1024", "size=64", "size=64/goroutines=2"} {
		book.Add(Name{"Write", params, "a"}, Figure{NsPerOp, 285.123456789}, Figure{"live-B", 1044943576})
		book.Add(Name{"Write", params, "b"}, Figure{NsPerOp, 100})
	}
	table := book.Table(NsPerOp)
	table.Head = "cpu: an abacus\ngo: go1\n"
	var first, second strings.Builder
	require.NoError(t, table.Write(&first))
	require.Contains(t, first.String(), "# cpu: an abacus\n")
	require.Contains(t, first.String(), "\nWrite\tsize=1024\ta\t\tns/op\t1\t285.12\t285.12\t285.12\t285.12\t285.12\n")
	read, err := Read(strings.NewReader(first.String()))
	require.NoError(t, err)
	require.NoError(t, read.Write(&second))
	require.Equal(t, first.String(), second.String())
	require.Equal(t, []int{64, 1024}, read.Numbers("Write", "size"))
	require.Equal(t, 2, read.Last("Write", "goroutines"))
	require.Zero(t, read.Last("Read", "size"))

	for _, line := range []string{"BenchmarkWrite 7 300 ns/op", "Write\tsize=64\ta\t\tns/op\tsome\t1\t1\t1\t1\t1"} {
		_, err = Read(strings.NewReader(line))
		require.ErrorContains(t, err, line[:5])
	}
}

func TestCasesComeInTheirOwnOrder(t *testing.T) {
	same := func(s string) string { return s }
	all := []string{"start", "list", "memory"}
	chosen, err := Choose(all, same, []string{"memory", "start"})
	require.NoError(t, err)
	require.Equal(t, []string{"start", "memory"}, chosen)
	chosen, err = Choose(all, same, nil)
	require.NoError(t, err)
	require.Equal(t, all, chosen)
	_, err = Choose(all, same, []string{"lists"})
	require.ErrorContains(t, err, `there is no case "lists": choose from start, list, memory`)
}

func TestTheMachineIsDescribed(t *testing.T) {
	require.Regexp(t, `(?s)^cpu: .*\nprocessors: \d+, GOMAXPROCS \d+\n.*go: go1`, Machine())
	WarnIfBusy(io.Discard)
}
