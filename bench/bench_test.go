package bench

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/bench/suite"
	"github.com/kube-atrest/atrest/internal/measure"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

func newSetting(t testing.TB, scale suite.Scale) *suite.Setting {
	s, err := suite.NewSetting(t.Context(), scale)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// Benchmark runs the contestants of all cases that repeat an operation.
func Benchmark(b *testing.B) {
	s := newSetting(b, suite.Quick())
	measure.Settle()
	for _, c := range suite.Cases() {
		loops, err := c.Loops(b.Context(), s)
		require.NoError(b, err)
		for _, l := range loops {
			b.Run(strings.Join([]string{l.Case, l.Params, "side=" + l.Side}, "/"), func(b *testing.B) {
				b.ReportAllocs()
				_, err := l.Run(b.N)
				require.NoError(b, err)
			})
		}
	}
}

// Rounds of every case, too short to mean anything: whatever is measured can
// be set up, reads back what it wrote, and gives a figure.
func TestEveryCaseRunsAndGivesFigures(t *testing.T) {
	s := newSetting(t, suite.Tiny())
	for _, c := range suite.Cases() {
		c.Slice = 0
		book := measure.NewBook()
		require.NoError(t, s.Measure(t.Context(), c, measure.Plan{Rounds: 2, Slice: 50 * time.Microsecond}, book), c.Name)
		for _, by := range []string{side.AtrestCounter, side.Kube} {
			require.True(t, book.Has(c.Name, by), "%s of %s", c.Name, by)
		}
	}
}

// What stays in memory and how often the plugin is asked does not depend on the machine.
func TestMemoryStaysAndADEKIsUnwrappedOnce(t *testing.T) {
	scale := suite.Tiny()
	scale.Writes = 100_000
	s, book := newSetting(t, scale), measure.NewBook()
	for _, c := range suite.Cases() {
		if c.Name == "Memory" || c.Name == "ColdStart" || c.Name == "ManyDEKs" {
			require.NoError(t, s.Measure(t.Context(), c, measure.Plan{Rounds: 1}, book))
		}
	}
	table := book.Table()
	for _, by := range []string{side.AtrestCounter, side.AtrestSeed} {
		early, late := table.Of(measure.Name{Case: "Memory", Params: "writes=10000", Side: by}, suite.LiveBytes), table.Of(measure.Name{Case: "Memory", Params: "writes=100000", Side: by}, suite.LiveBytes)
		require.Equal(t, 1, late.N)
		require.Less(t, late.Median-early.Median, 256.*1024, by)
	}
	// One more here: the key to write with is unwrapped once before it is used.
	for by, calls := range map[string]float64{side.AtrestCounter: 4 + 1, side.Kube: 4, side.Cipher: 0} {
		require.Equal(t, calls, table.Of(measure.Name{Case: "ColdStart", Params: "objects=40/deks=4", Side: by}, suite.DecryptCalls).Median, by)
	}
	require.Zero(t, table.Of(measure.Name{Case: "ManyDEKs", Params: "deks=5", Side: side.AtrestCounter}, suite.DecryptCalls).Median)
}
