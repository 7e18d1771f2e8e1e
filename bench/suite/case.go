package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/kube-atrest/atrest/bench/measure"
)

// The sides, as results call them. Those of kube-apiserver follow their file,
// as with --encryption-provider-config-automatic-reload; static ones do not.
const (
	Cipher           = "cipher"      // AES-256-GCM alone, the floor of all
	SeedCipher       = "cipher-seed" // the floor of source type 1
	AtrestCounter    = "atrest-counter"
	AtrestSeed       = "atrest-seed"
	KubeCounter      = "kube-counter"
	KubeCounterFixed = "kube-counter-static"
	KubeSeed         = "kube-seed"
	KubeSeedFixed    = "kube-seed-static"
	Tink             = "tink"

	// Of providers that hold their key, and of cases that do not tell modes apart.
	Atrest    = "atrest"
	Kube      = "kube"
	KubeFixed = "kube-static"
)

const annotatedSuffix = "-annotated"

// Annotated is the name of a side whose plugin gives annotations.
func Annotated(name string) string { return name + annotatedSuffix }

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
	// Contestants sets the case up. What it makes lives as long as the lab.
	Contestants func(ctx context.Context, s *Setting) ([]measure.Contestant, error)
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

// Cases are all there are.
func Cases() []Case {
	return []Case{
		{Name: "Nonce", About: "making a nonce: counted, random, or a key expanded for it", Rounds: parallelRounds, Slice: parallelSlice, Contestants: nonces},
		{Name: "Seal", About: "writing nothing, by 1 to 16 goroutines: the nonce with all that is around it", Rounds: parallelRounds, Slice: parallelSlice, Contestants: emptyValues},
		{Name: "Write", About: "writing a value with KMS v2, by size", Contestants: writes},
		{Name: "Read", About: "reading a value under a known DEK, by size", Contestants: reads},
		{Name: "ReadUnseen", About: "reading a value that was not read before, under a known DEK or seed", Contestants: unseenReads},
		{Name: "Sustained", About: "writing and reading for so long that garbage is collected several times", Rounds: sustainedRounds, Slice: sustainedSlice, Collects: true, Contestants: sustained},
		{Name: "Annotated", About: "the same when the plugin gives two annotations", Contestants: annotated},
		{Name: "Local", About: "aesgcm, secretbox and aescbc", Contestants: local},
		{Name: "Scaling", About: "writing and reading by 1 to 16 goroutines", Rounds: parallelRounds, Slice: parallelSlice, Contestants: scaling},
		{Name: "LiveWrites", About: "memory held after many writes of one key", Rounds: 1, Collects: true, Contestants: liveWrites},
		{Name: "LiveObjects", About: "memory held after reading many objects", Rounds: 3, Collects: true, Contestants: liveObjects},
		{Name: "ColdReaders", About: "many readers of one cold DEK", Rounds: 3, Collects: true, Contestants: coldReaders},
		{Name: "ColdStart", About: "start to the last of many objects read, with a plugin that takes its time", Rounds: 3, Collects: true, Contestants: coldStart},
		{Name: "Reload", About: "calls to the plugin because of a reload that changes nothing", Rounds: 3, Collects: true, Contestants: reloads},
	}
}

// SizeName is how results write a size in bytes: 64B, 1KiB, 1MiB.
func SizeName(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", bytes>>10)
	}
	return fmt.Sprintf("%dB", bytes)
}

// Size is the parameter of a size.
func Size(bytes int) string { return "size=" + SizeName(bytes) }

// Goroutines is the parameter of a number of goroutines.
func Goroutines(n int) string { return fmt.Sprintf("goroutines=%d", n) }
