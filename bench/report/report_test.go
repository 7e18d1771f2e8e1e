package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/suite"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// One round at a scale that means nothing: every target has a figure, and every
// file is there and is what its name says.
func TestAReportOfOneRoundIsComplete(t *testing.T) {
	o, err := parse([]string{"--rounds=1", "--slice=50us", "--out=" + filepath.Join(t.TempDir(), "results")}, io.Discard)
	require.NoError(t, err)
	o.scale = suite.Tiny()
	for i := range o.cases {
		o.cases[i].Slice = 0
	}
	o.scale.Sizes = append(o.scale.Sizes, 16<<10) // which has a target
	var out, progress bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out, &progress))

	require.NotContains(t, out.String(), string(notMeasured))
	require.Contains(t, out.String(), "20 readers of one cold DEK")
	for _, c := range suite.Cases() {
		require.Contains(t, progress.String(), c.About)
	}
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(o.out, name))
		require.NoError(t, err)
		require.NotEmpty(t, content, name)
		return content
	}
	require.Contains(t, string(read("machine.txt")), "go: go1")
	require.Contains(t, string(read("benchmarks.txt")), "\nBenchmarkWrite/size=1KiB/side=atrest-counter-")
	report := string(read("report.md"))
	for _, plot := range []string{"throughput", "scaling", "memory", "cold-start"} {
		require.Contains(t, report, "("+plot+".svg)")
		require.NoError(t, xml.Unmarshal(read(plot+".svg"), &struct {
			XMLName xml.Name `xml:"svg"`
		}{}), plot)
		picture, err := png.Decode(bytes.NewReader(read(plot + ".png")))
		require.NoError(t, err, plot)
		require.Greater(t, picture.Bounds().Dx(), 800, plot)
	}
}

func TestWhatWasNotMeasuredIsSaid(t *testing.T) {
	o, err := parse([]string{"--cases=Write"}, io.Discard)
	require.NoError(t, err)
	found := check(measure.NewBook(), o)
	require.NotEmpty(t, found)
	for _, f := range found {
		if f.target != "" {
			require.Equal(t, notMeasured, f.verdict, f.what)
		}
		require.Equal(t, "-", f.measured())
	}
	plots, err := draw(measure.NewBook(), o)
	require.NoError(t, err)
	require.Empty(t, plots)
}

// bookOf has one sample a round of three sides.
func bookOf(cipher, ours, theirs []float64) (*measure.Book, measure.Name) {
	book := measure.NewBook()
	name := measure.Name{Case: "Write", Params: "size=1KiB"}
	for side, values := range map[string][]float64{"cipher": cipher, "ours": ours, "theirs": theirs} {
		for _, v := range values {
			book.Add(measure.Measurement{Name: of(name, side), Sample: measure.Sample{N: 1, Metrics: []measure.Metric{{Unit: measure.NsPerOp, Value: v}}}})
		}
	}
	return book, of(name, "ours")
}

func TestATargetBeyondTheCipherIsSaidToBe(t *testing.T) {
	for _, c := range []struct {
		cipher, ours, theirs []float64
		want                 verdict
	}{
		{[]float64{100, 200}, []float64{150, 300}, []float64{3000, 6000}, met},
		{[]float64{100, 200}, []float64{400, 800}, []float64{3000, 6000}, notMet},
		{[]float64{250, 500}, []float64{300, 600}, []float64{3000, 6000}, atFloor},
		{[]float64{190, 380}, []float64{300, 600}, []float64{3000, 6000}, notMet}, // the cipher reaches it, if only just
	} {
		book, ours := bookOf(c.cipher, c.ours, c.theirs)
		j := &judgement{book: book, unit: measure.NsPerOp}
		f := j.faster("a write", ours, "theirs", "cipher", 15)
		require.Equal(t, c.want, f.verdict)
		require.Equal(t, "cipher alone: "+times(c.theirs[0]/c.cipher[0]), f.beside)
		require.Equal(t, times(c.theirs[0]/c.ours[0]), f.measured(), "the ratio within a round, whatever the machine did between rounds")
	}
}

func TestFlagsTeach(t *testing.T) {
	var help strings.Builder
	_, err := parse([]string{"--help"}, &help)
	require.ErrorIs(t, err, pflag.ErrHelp)
	for _, c := range suite.Cases() {
		require.Contains(t, help.String(), c.Name)
	}

	_, err = parse([]string{"--cases=Wirte"}, io.Discard)
	require.ErrorContains(t, err, `there is no case "Wirte": choose from Nonce, `)
	_, err = parse([]string{"--rounds=0"}, io.Discard)
	require.ErrorContains(t, err, "--rounds is 0")
	_, err = parse([]string{"quick"}, io.Discard)
	require.ErrorContains(t, err, `"quick" is no flag`)

	o, err := parse([]string{"--quick", "--slice=3ms", "--cpu"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, measure.Plan{Rounds: quickRounds, Slice: 3 * time.Millisecond}, o.plan)
	require.Equal(t, measure.CPUNsPerOp, o.unit)
	require.Equal(t, suite.Quick(), o.scale)
}

func TestFiguresAreShort(t *testing.T) {
	require.Equal(t, []string{"9.76x", "15.0x", "143x"}, []string{times(9.7612), times(15.02), times(143.4)})
	require.Equal(t, []string{"-4 KiB", "20.3 MiB", "2.10 GiB", "0.24 B", "105 B"},
		[]string{bytesForm(-4096), bytesForm(20.3 * (1 << 20)), bytesForm(2.1 * (1 << 30)), bytesForm(0.24), bytesForm(105)})
	require.Equal(t, []string{"1 000 000", "0.1"}, []string{thousands(1e6), thousands(0.1)})
	require.Equal(t, []string{"1.34 ms", "4.12 s"}, []string{duration(1.34e6), duration(4.12e9)})
	require.InDeltaSlice(t, []float64{0, 0.05, 0.1, 0.15, 0.2}, round(0.2), 1e-9)
}

func TestAReportThatCannotBeWrittenIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	o, err := parse([]string{"--out=" + file}, io.Discard)
	require.NoError(t, err)
	_, err = save(o, machine{}, measure.NewBook(), nil)
	var path *os.PathError
	require.True(t, errors.As(err, &path), err)
}
