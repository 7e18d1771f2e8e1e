package main

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/bench/suite"
	"github.com/kube-atrest/atrest/internal/measure"
)

// One round at a scale that means nothing: every target has a figure, every file is
// there and is what its name says, and all are the same when they are made again.
func TestAReportOfOneRoundIsComplete(t *testing.T) {
	o, err := parse([]string{"--rounds=1", "--slice=50us", "--out=" + filepath.Join(t.TempDir(), "results")}, io.Discard)
	require.NoError(t, err)
	o.scale = suite.Tiny()
	for i := range o.cases {
		o.cases[i].Slice = 0
	}
	var out, progress bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out, &progress))

	require.NotContains(t, out.String(), string(notMeasured))
	for _, c := range suite.Cases() {
		require.Contains(t, progress.String(), c.About)
	}
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(o.out, name))
		require.NoError(t, err)
		return content
	}
	require.Contains(t, string(read(figures)), "\nWrite\tsize=1024\tatrest-counter\tkube\tns/op\t1\t")
	report := string(read("report.md"))
	require.Contains(t, report, "\ngo: go1")
	for _, plot := range []string{"throughput", "scaling", "memory", "cold-start"} {
		require.Contains(t, report, "("+plot+".svg)")
		require.NoError(t, xml.Unmarshal(read(plot+".svg"), &struct {
			XMLName xml.Name `xml:"svg"`
		}{}), plot)
		_, err := png.Decode(bytes.NewReader(read(plot + ".png")))
		require.NoError(t, err, plot)
	}

	require.NoError(t, os.Remove(filepath.Join(o.out, "report.md")))
	o.remake = true
	require.NoError(t, run(t.Context(), o, io.Discard, io.Discard))
	require.Equal(t, report, string(read("report.md")))
}

func TestWhatIsInTheRepositoryIsMadeOfItsFigures(t *testing.T) {
	o := &options{out: t.TempDir(), remake: true}
	kept, err := os.ReadFile("../results/" + figures)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(o.out, figures), kept, 0o600))
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out, io.Discard))
	report, err := os.ReadFile("../results/report.md")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out.String(), string(report)), "run go run ./bench/report --remake")
}

func TestWhatWasNotMeasuredIsSaid(t *testing.T) {
	table := measure.NewBook().Table()
	for _, f := range check(table) {
		require.Equal(t, f.target != "", f.verdict == notMeasured, f.what)
		require.Equal(t, "-", f.measured)
	}
	plots, err := drawAll(table)
	require.NoError(t, err)
	require.Empty(t, plots)
}

func TestATargetBeyondTheCipherIsSaidToBe(t *testing.T) {
	for _, c := range []struct {
		cipher, ours, theirs float64
		want                 verdict
	}{
		{100, 150, 3000, met},
		{100, 400, 3000, notMet},
		{250, 300, 3000, atFloor},
		{190, 300, 3000, notMet}, // the cipher reaches it, if only just
	} {
		book, n := measure.NewBook(), at("Write", kib, side.AtrestCounter)
		for _, drift := range []float64{1, 2} { // of the machine, between rounds
			book.Add(n.Of(side.Cipher), measure.Figure{Unit: measure.NsPerOp, Value: c.cipher * drift})
			book.Add(n, measure.Figure{Unit: measure.NsPerOp, Value: c.ours * drift})
			book.Add(n.Of(side.Kube), measure.Figure{Unit: measure.NsPerOp, Value: c.theirs * drift})
		}
		f := target{"a write", faster, n, side.Kube, 15, false, side.Cipher}.finding(book.Table(measure.NsPerOp))
		require.Equal(t, c.want, f.verdict)
		require.Equal(t, "faster than kube", f.figure)
		require.Equal(t, "cipher alone: "+times(c.theirs/c.cipher), f.beside)
		require.Equal(t, times(c.theirs/c.ours), f.measured, "the ratio within a round, whatever the machine did between rounds")
	}
}

func TestFlagsTeach(t *testing.T) {
	var help strings.Builder
	_, err := parse([]string{"--help"}, &help)
	require.ErrorIs(t, err, pflag.ErrHelp)
	for _, c := range suite.Cases() {
		require.Contains(t, help.String(), c.Name)
	}
	for flag, says := range map[string]string{
		"--cases=Wirte": `there is no case "Wirte": choose from Write, `,
		"--rounds=0":    "--rounds is 0",
		"quick":         `"quick" is no flag`,
	} {
		_, err = parse([]string{flag}, io.Discard)
		require.ErrorContains(t, err, says)
	}
	o, err := parse([]string{"--quick", "--slice=3ms"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, measure.Plan{Rounds: quick.Rounds, Slice: 3 * time.Millisecond}, o.plan)
	require.Equal(t, suite.Quick(), o.scale)
}

func TestFiguresAreShort(t *testing.T) {
	require.Equal(t, []string{"9.76x", "15.0x", "143x"}, []string{times(9.7612), times(15.02), times(143.4)})
	require.Equal(t, []string{"-4 KiB", "20.3 MiB", "2.10 GiB", "105 B"},
		[]string{bytesForm(-4096), bytesForm(20.3 * (1 << 20)), bytesForm(2.1 * (1 << 30)), bytesForm(105)})
	require.Equal(t, []string{"1 000 000", "1.34 ms", "4.12 s"}, []string{thousands(1e6), duration(1.34e6), duration(4.12e9)})
}

func TestAReportThatCannotBeWrittenIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Error(t, measure.Save(file, nil, io.Discard))
	require.ErrorIs(t, run(t.Context(), &options{out: t.TempDir(), remake: true}, io.Discard, io.Discard), os.ErrNotExist)
}
