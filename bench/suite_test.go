package bench

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/suite"
)

// Rounds of every case, too short to mean anything: whatever is measured can
// be set up, reads back what it wrote, and gives a figure.
func TestEveryCaseRunsAndGivesFigures(t *testing.T) {
	s := newSetting(t, suite.Tiny())
	for _, c := range suite.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			contestants, err := c.Contestants(t.Context(), s)
			require.NoError(t, err)
			require.NotEmpty(t, contestants)

			book, done := measure.NewBook(), 0
			plan := measure.Plan{Rounds: 1, Slice: 50 * time.Microsecond, Before: s.Renew, After: func() { done++ }}
			if c.Rounds == 0 {
				plan.Rounds = 2
			}
			require.NoError(t, plan.Interleave(t.Context(), contestants, book))
			require.Equal(t, plan.Rounds*len(contestants), done)
			require.NotEmpty(t, book.Names())
			for _, n := range book.Names() {
				require.Equal(t, c.Name, n.Case)
				require.Len(t, book.Samples(n), plan.Rounds, n)
				require.NotEmpty(t, book.Samples(n)[0].Metrics, n)
			}
		})
	}
}

// What the outcome of the slow cases is made of does not depend on the machine.
func TestTheSlowCasesCountWhatTheySay(t *testing.T) {
	s := newSetting(t, suite.Tiny())
	book := measure.NewBook()
	for _, name := range []string{"ColdReaders", "ColdStart", "Reload"} {
		require.NoError(t, measure.Plan{Rounds: 1}.Interleave(t.Context(), contestantsOf(t, s, name), book))
	}
	one := func(n measure.Name, unit string) float64 {
		values := book.Values(n, unit)
		require.Len(t, values, 1, "%s %s", n, unit)
		return values[0]
	}
	readers := func(side string) measure.Name {
		return measure.Name{Case: "ColdReaders", Params: "readers=20", Side: side}
	}
	require.EqualValues(t, 1, one(readers(suite.AtrestCounter), suite.DecryptCalls))
	require.Greater(t, one(readers(suite.KubeCounter), suite.DecryptCalls), 1.0)

	start := func(side string) measure.Name { return measure.Name{Case: "ColdStart", Side: side} }
	// One more here: the key to write with is unwrapped once before it is used.
	for side, calls := range map[string]float64{suite.AtrestCounter: 4 + 1, suite.KubeCounter: 4, suite.Tink: 40, suite.Cipher: 0} {
		require.EqualValues(t, 40, one(start(side), suite.ObjectsRead), side)
		require.EqualValues(t, calls, one(start(side), suite.DecryptCalls), side)
	}

	reload := func(side string) measure.Name { return measure.Name{Case: "Reload", Side: side} }
	require.Zero(t, one(reload(suite.AtrestCounter), suite.DecryptCalls))
	require.Zero(t, one(reload(suite.AtrestCounter), suite.EncryptCalls))
	require.EqualValues(t, 4, one(reload(suite.KubeCounter), suite.DecryptCalls))
}

func TestABookIsWrittenAsBenchmarkLines(t *testing.T) {
	book := measure.NewBook()
	name := measure.Name{Case: "Write", Params: "size=1KiB", Side: "atrest"}
	for _, ns := range []float64{300, 310.5} {
		book.Add(measure.Measurement{Name: name, Sample: measure.Sample{N: 7, Metrics: []measure.Metric{{Unit: "ns/op", Value: ns}, {Unit: "allocs/op", Value: 1}}}})
	}
	var out bytes.Buffer
	require.NoError(t, book.Write(&out, "a processor"))
	lines := slices.Collect(strings.Lines(out.String()))
	require.Contains(t, lines, "cpu: a processor\n")
	require.Regexp(t, `^BenchmarkWrite/size=1KiB/side=atrest-\d+\t7\t300 ns/op\t1 allocs/op\n$`, lines[len(lines)-2])
	require.Regexp(t, `\t310.5 ns/op\t`, lines[len(lines)-1])
}

func TestTheSpreadIsOfRatiosWithinARound(t *testing.T) {
	// The machine was twice as slow in every second round.
	a, b := []float64{300, 600, 300, 600, 300}, []float64{100, 200, 100, 200, 100}
	require.Equal(t, measure.Spread{Median: 3, Low: 3, High: 3, N: 5}, measure.Ratio(a, b))
	require.Equal(t, measure.Spread{Median: 2.5, Low: 1.3, High: 3.7, N: 4}, measure.SpreadOf([]float64{1, 2, 3, 4}))
	require.Equal(t, measure.Spread{}, measure.Ratio(nil, b))
}

func TestEveryRoundBeginsWithAnotherOfTheGroup(t *testing.T) {
	var order []string
	side := func(group, name string) measure.Contestant {
		return &measure.Trial{Name: measure.Name{Case: group, Side: name}, Do: func(context.Context) ([]measure.Point, error) {
			order = append(order, group+name)
			return nil, nil
		}}
	}
	contestants := []measure.Contestant{side("x", "1"), side("x", "2"), side("x", "3"), side("y", "1"), side("y", "2")}
	require.NoError(t, measure.Plan{Rounds: 3}.Interleave(t.Context(), contestants, measure.NewBook()))
	require.Equal(t, strings.Fields("x1 x2 x3 y1 y2  x2 x3 x1 y2 y1  x3 x1 x2 y1 y2"), order)
}
