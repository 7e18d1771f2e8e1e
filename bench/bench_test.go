package bench

import (
	"flag"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/bench/suite"
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

var full = flag.Bool("full", false, "run the slow benchmarks at the scale of the targets: minutes each")

// benchmark runs the contestants of a case as Go benchmarks.
func benchmark(b *testing.B, name string) {
	scale := suite.Quick()
	if *full {
		scale = suite.Full()
	}
	s := newSetting(b, scale)
	measure.Settle()
	for _, c := range contestantsOf(b, s, name) {
		switch c := c.(type) {
		case *measure.Loop:
			b.Run(c.Name.Path(), c.Bench)
		case *measure.Trial:
			b.Run(c.Name.Path(), c.Bench)
		}
	}
}

func newSetting(t testing.TB, scale suite.Scale) *suite.Setting {
	lab, err := side.NewLab(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lab.Close()) })
	s, err := suite.NewSetting(t.Context(), lab, scale)
	require.NoError(t, err)
	return s
}

func contestantsOf(t testing.TB, s *suite.Setting, name string) []measure.Contestant {
	for _, c := range suite.Cases() {
		if c.Name == name {
			found, err := c.Contestants(t.Context(), s)
			require.NoError(t, err)
			return found
		}
	}
	t.Fatalf("there is no case %q", name)
	return nil
}

func BenchmarkNonce(b *testing.B)       { benchmark(b, "Nonce") }
func BenchmarkSeal(b *testing.B)        { benchmark(b, "Seal") }
func BenchmarkWrite(b *testing.B)       { benchmark(b, "Write") }
func BenchmarkRead(b *testing.B)        { benchmark(b, "Read") }
func BenchmarkReadUnseen(b *testing.B)  { benchmark(b, "ReadUnseen") }
func BenchmarkSustained(b *testing.B)   { benchmark(b, "Sustained") }
func BenchmarkAnnotated(b *testing.B)   { benchmark(b, "Annotated") }
func BenchmarkLocal(b *testing.B)       { benchmark(b, "Local") }
func BenchmarkScaling(b *testing.B)     { benchmark(b, "Scaling") }
func BenchmarkLiveWrites(b *testing.B)  { benchmark(b, "LiveWrites") }
func BenchmarkLiveObjects(b *testing.B) { benchmark(b, "LiveObjects") }
func BenchmarkColdReaders(b *testing.B) { benchmark(b, "ColdReaders") }
func BenchmarkColdStart(b *testing.B)   { benchmark(b, "ColdStart") }
func BenchmarkReload(b *testing.B)      { benchmark(b, "Reload") }
