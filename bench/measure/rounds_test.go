package measure

import (
	"context"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// looker looks at the collector while it is measured.
type looker struct{ percent int }

func (*looker) Group() string { return "" }

func (l *looker) Round(context.Context, time.Duration) ([]Measurement, error) {
	l.percent = debug.SetGCPercent(-1)
	debug.SetGCPercent(l.percent)
	return nil, nil
}

func TestNobodyIsInterruptedByACollectionUnlessThePlanSaysSo(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for collects, percent := range map[bool]int{false: -1, true: 100} {
		var l looker
		require.NoError(t, Plan{Rounds: 1, Collects: collects}.Interleave(t.Context(), []Contestant{&l}, NewBook()))
		require.Equal(t, percent, l.percent)
		require.Equal(t, 100, debug.SetGCPercent(100), "it goes on as before")
	}
}

func TestEveryRoundBeginsElsewhereOnTheStack(t *testing.T) {
	l := &Loop{Do: func() error { return nil }}
	seen := map[int]bool{}
	for range 20 {
		seen[l.depth()] = true
		_, err := l.Round(t.Context(), time.Microsecond)
		require.NoError(t, err)
	}
	require.Len(t, seen, 20)
}

func TestFiguresAreWrittenWithoutDigitsThatMeanNothing(t *testing.T) {
	book := NewBook()
	book.Add(Measurement{Name{Case: "Write", Side: "cipher"}, Sample{N: 7, Metrics: []Metric{
		{NsPerOp, 285.123456789}, {BytesPerOp, 1280}, {"live-B", 1044943576}, {MBPerSecond, 0.00123456789},
	}}})
	var out strings.Builder
	require.NoError(t, book.Write(&out, "some"))
	require.Contains(t, out.String(), "\t7\t285.12 ns/op\t1280 B/op\t1044900000 live-B\t0.0012346 MB/s\n")
}
