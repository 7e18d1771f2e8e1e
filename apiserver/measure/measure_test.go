package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/internal/measure"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, harness.Programs())) }

// The Secrets are sealed by the library, and it is kube-apiserver itself that starts on
// them and lists them.
func TestAServerStartsOnWhatWasPutIntoEtcd(t *testing.T) {
	o, err := parse([]string{"--rounds=1", "--secrets=150", "--deks=3", "--writes=10", "--cases=start", "--out=" + t.TempDir()}, io.Discard)
	require.NoError(t, err)
	o.sides = sides()[1:2]
	require.NoError(t, run(t.Context(), o, io.Discard, io.Discard))

	require.Regexp(t, `(?m)^Start\tsecrets=150/deks=3\tkube-apiserver\t\tdecrypts\t1\t3\t`, read(t, o.out, "end-to-end.tsv"))
	require.Contains(t, read(t, o.out, "end-to-end.md"), "| read from etcd in that time, MiB | less | – | ")
	require.Contains(t, read(t, o.out, "end-to-end.md"), "| keys unwrapped by the plugin in that time | less | – | 3.00 | – | – | – |")
}

func read(t *testing.T, folder, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	require.NoError(t, err)
	return string(text)
}

func TestTheTableSaysWhatWasMeasuredAndWhereNothingCanBeSeen(t *testing.T) {
	b, s := measure.NewBook(), scale{rounds: 20, writes: 100}
	for round := range 5 {
		drift := float64(1 + round) // of the machine, which all sides feel
		b.Add(memoryName(s).Of(ours), one(measure.NsPerOp, 2e6*drift))
		b.Add(memoryName(s).Of(stock), one(measure.NsPerOp, 4e6*drift))
		b.Add(memoryName(s).Of(none), one(measure.NsPerOp, []float64{1e6, 2e6, 3e6, 2e6, 1e6}[round]*drift))
	}
	table := b.Table(measure.NsPerOp)
	table.Head = "cpu: an abacus\n"
	var text strings.Builder
	report{s, table, []string{"--rounds=1"}}.write(&text)

	require.Contains(t, text.String(), "| updates a second, 16 clients | more | 167 | 83.3 | ")
	require.Contains(t, text.String(), " | 2.00 [2.00, 2.00] | 1.00 [0.50, 1.25], no difference to be seen |")
	require.NotContains(t, text.String(), "| LIST", "what was not measured has no row")
	require.Contains(t, text.String(), "cpu: an abacus")
	require.Contains(t, text.String(), "go run ./apiserver/measure --rounds=1`")
}

func TestQuickLeavesWhatWasAskedFor(t *testing.T) {
	o, err := parse([]string{"--quick", "--secrets=123", "--cases=memory,list"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, scale{2, 123, 10, 2000, 500, 20000}, o.scale)
	require.Len(t, o.cases, 2)
	require.Equal(t, []string{"--quick=true", "--secrets=123", "--cases=memory,list"}, o.args)
}

func TestWhatCannotBeMeasuredIsRefused(t *testing.T) {
	for flag, says := range map[string]string{
		"--cases=lists": "choose from start, list, memory, migrate, audit",
		"--rounds=0":    "--rounds",
		"--writes=9":    "--writes at least 10",
		"--audited=99":  "--audited at least 100",
		"now":           "no flag",
	} {
		_, err := parse([]string{flag}, io.Discard)
		require.ErrorContains(t, err, says, flag)
	}
}
