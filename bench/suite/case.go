package suite

import (
	"context"
	"runtime"
	"time"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/internal/measure"
)

// Case is something worth measuring.
type Case struct {
	Name  string
	About string
	// Rounds is in how many rounds it is measured at most, and Slice how long
	// at least one of them is measured in a round; 0 leaves both to the plan.
	Rounds int
	Slice  time.Duration
	// Collects has garbage collected while it is measured, see [measure.Plan].
	Collects bool

	// What is repeated by each of the sides, with values of every size, or of one, and by
	// every number of goroutines, or by one.
	do       []operation
	sides    []string
	sizes    []int // nil for all
	parallel bool
	// once makes the contestants of a case that repeats nothing.
	once func(ctx context.Context, s *Setting) ([]measure.Contestant, error)
}

// Goroutines take a while to find their processors.
const (
	parallelRounds = 25
	parallelSlice  = 10 * time.Millisecond
)

// Garbage is collected every 64 MiB or so, see [measure.Settle]: after some
// 50,000 writes of the cipher. A slice has to see that several times.
const (
	sustainedRounds = 9
	sustainedSlice  = 150 * time.Millisecond
)

// Plan is the plan for the case.
func (c Case) Plan(p measure.Plan) measure.Plan {
	if c.Rounds > 0 {
		p.Rounds = min(p.Rounds, c.Rounds)
	}
	p.Slice = max(p.Slice, c.Slice)
	p.Collects = c.Collects
	return p
}

var (
	all = append([]string{side.CipherRandom, side.AtrestAESGCM, side.KubeAESGCM}, kms...)
	kms = []string{side.Cipher, side.CipherSeed, side.AtrestCounter, side.AtrestSeed, side.Kube}
)

// Cases are all there are.
func Cases() []Case {
	readWrite, one := []operation{{"write", write}, {"read", read}}, []int{kib}
	return []Case{
		{Name: "Write", About: "writing a value, by size", do: readWrite[:1], sides: all},
		{Name: "Read", About: "reading a value again, by size", do: readWrite[1:], sides: all},
		{Name: "ReadOlder", About: "reading values not read before under a known DEK of an earlier start, by size", do: []operation{{"older", older}}, sides: kms},
		{Name: "Sustained", About: "writing and reading for so long that garbage is collected several times", Rounds: sustainedRounds, Slice: sustainedSlice, Collects: true, do: readWrite, sides: kms, sizes: one},
		{Name: "Scaling", About: "writing and reading by 1 goroutine and by as many as there are processors", Rounds: parallelRounds, Slice: parallelSlice, do: readWrite, sides: kms, sizes: one, parallel: true},
		// As near as an apiserver comes to the nonce, alone and where processors contend for
		// it. With nothing around it is BenchmarkNonce, in package envelope.
		{Name: "Nonce", About: "the same of writing nothing: the nonce, and what is around it", Rounds: parallelRounds, Slice: parallelSlice, do: readWrite[:1], sides: append([]string{side.CipherRandom}, kms...), sizes: []int{0}, parallel: true},
		{Name: "Memory", About: "memory held after many writes of one key", Rounds: 1, Collects: true, once: memory},
		{Name: "ColdStart", About: "start to the last of many objects read, with a plugin that takes its time", Rounds: 3, Collects: true, once: coldStart},
		{Name: "ManyDEKs", About: "reading objects of more and more DEKs again", Rounds: 3, Collects: true, once: manyDEKs},
	}
}

// Scale is how large the cases are.
type Scale struct {
	Sizes []int // of values, in bytes
	// Writes is how many values are written of one key, for memory.
	Writes int
	// Objects under DEKs are what is read cold, with a plugin that takes Delay
	// to unwrap.
	Objects, DEKs int
	Delay         time.Duration
	// ManyDEKs are numbers of DEKs; the library keeps [envelope.DefaultMaxDEKs].
	ManyDEKs []int
}

// Full is the scale that the project's targets are stated for.
func Full() Scale {
	return Scale{
		Sizes:  []int{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10},
		Writes: 10_000_000, Objects: 10_000, DEKs: 200, Delay: 20 * time.Millisecond,
		ManyDEKs: []int{4_000, 4_500},
	}
}

// Quick keeps what is needed for a first look.
func Quick() Scale {
	s := Full()
	s.Writes, s.Objects, s.DEKs = 200_000, 2_000, 40
	return s
}

// Tiny is for tests: everything runs once, and no figure means anything.
func Tiny() Scale {
	return Scale{
		Sizes:  []int{256, 1 << 10, 64 << 10},
		Writes: 200, Objects: 40, DEKs: 4, Delay: time.Millisecond, ManyDEKs: []int{5},
	}
}

// Goroutines are 1 and as many as there are processors, and powers of 2 between.
func Goroutines() []int {
	var all []int
	for n := 1; n < runtime.GOMAXPROCS(0); n *= 2 {
		all = append(all, n)
	}
	return append(all, runtime.GOMAXPROCS(0))
}
