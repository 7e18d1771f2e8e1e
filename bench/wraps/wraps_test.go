package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/measure"
)

// TestMain is a plugin when this is started as one, to see what memory that takes.
func TestMain(m *testing.M) {
	if isPlugin(os.Args) {
		main()
		return
	}
	os.Exit(m.Run())
}

// One round that means nothing: whatever is measured can be set up, opens what it wrapped, and
// has a figure; the report is the same when it is made again.
func TestEverySideRunsAndGivesFigures(t *testing.T) {
	o, err := parse([]string{"--out=" + t.TempDir(), "--stores=keyfile,distant"}, io.Discard)
	require.NoError(t, err)
	o.plan = measure.Plan{Rounds: 2, Slice: 100 * time.Microsecond}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out, io.Discard))
	kept, err := os.Open(filepath.Join(o.out, figures))
	require.NoError(t, err)
	defer kept.Close()
	table, err := measure.Read(kept)
	require.NoError(t, err)
	for _, s := range o.stores {
		for _, op := range ops {
			if _, err := os.Stat("/proc/self/status"); err == nil {
				require.Greater(t, table.Of(nameOf(s.name, op, 64, plugin), peak).Median, 1e6, "%s %s: bytes", s.name, op)
			}
			for _, callers := range loads {
				for _, by := range []string{alone, keeper, plugin, reference} {
					for _, unit := range []string{measure.NsPerOp, p50, p99} {
						require.Equal(t, 2, table.Of(nameOf(s.name, op, callers, by), unit).N, "%s %s %d %s %s", s.name, op, callers, by, unit)
					}
				}
			}
		}
	}
	told, err := os.ReadFile(filepath.Join(o.out, report))
	require.NoError(t, err)
	require.Equal(t, 12, strings.Count(string(told), "| keyfile |")+strings.Count(string(told), "| distant |"))
	o.remake = true
	require.NoError(t, run(t.Context(), o, io.Discard, io.Discard))
	again, err := os.ReadFile(filepath.Join(o.out, report))
	require.NoError(t, err)
	require.Equal(t, string(told), string(again))
}

// A back end that cannot be had is no failure, unless it was asked for, and never looks as if it
// was measured; least of all is a fake of Vault.
func TestTheReportSaysWhatIsLeftOutAndHowToHaveIt(t *testing.T) {
	t.Setenv(program, "")
	o, err := parse([]string{"--stores=vault", "--out=" + t.TempDir()}, io.Discard)
	require.NoError(t, err)
	require.ErrorContains(t, run(t.Context(), o, io.Discard, io.Discard), "ATREST_VAULT names no Vault")
	o.named = false
	var told, progress bytes.Buffer
	require.NoError(t, run(t.Context(), o, &told, &progress))
	require.Contains(t, progress.String(), "left out, ATREST_VAULT names no Vault")
	require.Regexp(t, `(?m)^- vault: .*\*\*Left out\*\*: ATREST_VAULT names no Vault: .* build `, told.String())
	require.Regexp(t, `(?m)^- keyfile: .*\*\*Left out\*\* of this run`, told.String())
	require.NotContains(t, told.String(), "| vault |")
}

func TestAPluginThatDoesNotStartSaysWhy(t *testing.T) {
	t.Setenv(program, "")
	_, _, err := startPlugin("vault", t.TempDir())
	require.ErrorContains(t, err, "ATREST_VAULT names no Vault")
}

func TestWhatIsInTheRepositoryIsMadeOfItsFigures(t *testing.T) {
	kept, err := os.ReadFile("../results/" + figures)
	require.NoError(t, err)
	o := &options{out: t.TempDir(), remake: true}
	require.NoError(t, os.WriteFile(filepath.Join(o.out, figures), kept, 0o600))
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out, io.Discard))
	told, err := os.ReadFile("../results/" + report)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out.String(), string(told)), "run go run ./bench/wraps --remake")
}

func TestATargetIsMissedWhenItIs(t *testing.T) {
	for cost, verdict := range map[float64]string{1.1: "met", 1.3: "missed", 1.5: "missed, by the reference too"} {
		book := measure.NewBook()
		for _, drift := range []float64{1, 2} { // of the machine, between rounds
			book.Add(nameOf("distant", "wrap", 1, alone), measure.Figure{Unit: measure.NsPerOp, Value: 1e6 * drift})
			book.Add(nameOf("distant", "wrap", 1, plugin), measure.Figure{Unit: measure.NsPerOp, Value: 1e6 * drift * cost})
			book.Add(nameOf("distant", "wrap", 1, reference), measure.Figure{Unit: measure.NsPerOp, Value: 1e6 * drift * (cost - .2)})
		}
		var told strings.Builder
		tell(&told, book.Table(measure.NsPerOp))
		require.Contains(t, told.String(), "| at most 1.2x | "+verdict+" |")
	}
}

func TestFlagsTeach(t *testing.T) {
	var help strings.Builder
	_, err := parse([]string{"--help"}, &help)
	require.ErrorIs(t, err, pflag.ErrHelp)
	require.Contains(t, help.String(), "keyfile")
	for flag, says := range map[string]string{
		"--stores=vualt": `there is no case "vualt": choose from keyfile`,
		"quick":          `"quick" is no flag`,
	} {
		_, err = parse([]string{flag}, io.Discard)
		require.ErrorContains(t, err, says)
	}
}
