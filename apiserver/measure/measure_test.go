package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if program, started := startedAs(); started {
		os.Exit(program())
	}
	os.Exit(m.Run())
}

// The Secrets are sealed by the library, and it is kube-apiserver itself that starts on
// them and lists them.
func TestAServerStartsOnWhatWasPutIntoEtcd(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	chosen, err := choose([]string{"start"})
	require.NoError(t, err)
	o := &options{out: out, cases: chosen, sides: sides()[1:2], scale: scale{rounds: 1, slice: time.Millisecond, secrets: 150, deks: 3, writes: chunks}}

	require.NoError(t, run(t.Context(), o, io.Discard, io.Discard))

	numbers := read(t, out, "end-to-end.txt")
	require.Regexp(t, `(?m)^BenchmarkStart/secrets=150/deks=3/side=kube-apiserver-\d+\t1\t\d+ ns/op\t\d+ listed-ns\t3 decrypts\t\d{6,} etcd-B$`, numbers)
	require.Contains(t, read(t, out, "end-to-end.md"), "| read from etcd in that time, MiB | less | – | ")
	require.Contains(t, read(t, out, "end-to-end.md"), "| keys unwrapped by the plugin in that time | less | – | 3.00 | – | – | – |")
}

func read(t *testing.T, folder, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	require.NoError(t, err)
	return string(text)
}

func TestTheTableSaysWhatWasMeasuredAndWhereNothingCanBeSeen(t *testing.T) {
	t.Parallel()
	b, s := newBook(), full
	for round := range 5 {
		drift := float64(1 + round) // of the machine, which all sides feel
		b.add(name{createGroup(oneClient), ours}, 100, figure{nsPerOp, 2e6 * drift})
		b.add(name{createGroup(oneClient), stock}, 100, figure{nsPerOp, 4e6 * drift})
		b.add(name{createGroup(oneClient), none}, 100, figure{nsPerOp, []float64{1e6, 2e6, 3e6, 2e6, 1e6}[round] * drift})
	}
	var table strings.Builder
	require.NoError(t, report{s, b, []string{"--rounds=1"}}.write(&table, machine{cpu: "an abacus"}))

	require.Contains(t, table.String(), "| creates a second, 1 client | more | 167 | 83.3 | ")
	require.Contains(t, table.String(), " | 2.00 [2.00, 2.00] | 1.00 [0.50, 1.30], no difference to be seen |")
	require.NotContains(t, table.String(), "| LIST", "what was not measured has no row")
	require.Contains(t, table.String(), "cpu: an abacus")
	require.Contains(t, table.String(), "go run ./apiserver/measure --rounds=1`")
}

func TestNumbersAreInTheFormatOfGoBenchmarks(t *testing.T) {
	t.Parallel()
	b := newBook()
	b.add(name{"List/secrets=7", ours}, 3, figure{nsPerOp, 12.5}, figure{cpuPerOp, 4})
	var text strings.Builder
	require.NoError(t, b.write(&text, "an abacus"))
	require.Contains(t, text.String(), "\ncpu: an abacus\n")
	require.Regexp(t, `(?m)^BenchmarkList/secrets=7/side=atrest-\d+\t3\t12.5 ns/op\t4 cpu-ns/op$`, text.String())
}

func TestSpread(t *testing.T) {
	t.Parallel()
	require.Equal(t, spread{}, spreadOf(nil))
	require.Equal(t, spread{7, 7, 7, 1}, spreadOf([]float64{7}))
	require.Equal(t, spread{5, 1, 9, 11}, spreadOf([]float64{10, 0, 9, 1, 8, 2, 7, 3, 6, 4, 5}))
	require.Equal(t, []float64{2, 3}, divide([]float64{4, 1, 9}, []float64{2, 0, 3}), "nothing is divided by 0")
}

func TestQuickLeavesWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"--quick", "--secrets=123", "--cases=memory,list"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, scale{quick.rounds, quick.slice, 123, quick.deks, quick.writes}, o.scale)
	require.Len(t, o.cases, 2)
	require.Equal(t, "list", o.cases[0].name, "cases come in their own order")
}

func TestWhatCannotBeMeasuredIsRefused(t *testing.T) {
	t.Parallel()
	for flag, says := range map[string]string{
		"--cases=lists": "choose from start, create, list, memory",
		"--rounds=0":    "--rounds",
		"--writes=9":    "--writes at least 10",
		"now":           "no flag",
	} {
		_, err := parse([]string{flag}, io.Discard)
		require.ErrorContains(t, err, says, flag)
	}
}
