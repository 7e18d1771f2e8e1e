package measure

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Loop is an operation that is repeated for the time of a slice.
type Loop struct {
	Name
	// Do is one operation. It is called by Goroutines goroutines at once, one
	// if that is 0.
	Do         func() error
	Goroutines int
	// Bytes is how many bytes an operation works on; 0 gives no throughput.
	Bytes int

	n      int // operations that fill a slice, found in the first round
	rounds int // that were measured
}

var _ Contestant = (*Loop)(nil)

// Round repeats the operation.
func (l *Loop) Round(_ context.Context, slice time.Duration) ([]Measurement, error) {
	if l.n == 0 {
		n, err := l.fill(slice)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		l.n = n
	}
	if _, err := l.run(l.n); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	// Now caches are warm, and there is as much free memory as the same again
	// will need, that is known to the system. The runtime gives free memory back
	// when there is more of it than was in use at the last collection, and to
	// touch a page again costs more than to encrypt it: without this, whoever
	// needs more memory in a slice would pay for that and the others would not.
	runtime.GC()
	before := look()
	took, err := l.run(l.n)
	l.rounds++
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	return []Measurement{{l.Name, l.sample(took, look().since(before))}}, nil
}

func (l *Loop) sample(took time.Duration, spent usage) Sample {
	n := float64(l.n)
	metrics := []Metric{{NsPerOp, float64(took) / n}, {CPUNsPerOp, float64(spent.cpu) / n}}
	if l.Bytes > 0 {
		metrics = append(metrics, Metric{MBPerSecond, float64(l.Bytes) * n / 1e6 / took.Seconds()})
	}
	return Sample{N: l.n, Metrics: append(metrics,
		Metric{BytesPerOp, math.Floor(float64(spent.bytes) / n)}, // what is left over is the background's
		Metric{AllocsPerOp, math.Floor(float64(spent.allocs) / n)})}
}

// fill finds how many operations take as long as slice.
func (l *Loop) fill(slice time.Duration) (int, error) {
	for n := 1; ; n *= 2 {
		took, err := l.run(n)
		if err == nil && took >= slice/4 {
			took, err = l.shortest(n)
		}
		if err != nil {
			return 0, err
		}
		if took >= slice/4 {
			return max(1, int(float64(n)*float64(slice)/float64(took))), nil
		}
	}
}

// shortest is how long n operations take: the shortest of some tries, for the
// others did something for the first time, or were interrupted. Each try begins
// with the same free memory, or all of them would be spent on asking the system
// for more.
func (l *Loop) shortest(n int) (time.Duration, error) {
	shortest := time.Duration(math.MaxInt64)
	for range 3 {
		runtime.GC()
		took, err := l.run(n)
		if err != nil {
			return 0, err
		}
		shortest = min(shortest, took)
	}
	return shortest, nil
}

// run does n operations and tells how long they took.
func (l *Loop) run(n int) (time.Duration, error) {
	if l.Goroutines <= 1 {
		var err error
		start := time.Now()
		deeper(l.depth(), func() { err = repeat(n, l.Do) })
		return time.Since(start), err
	}
	errs := make([]error, l.Goroutines)
	begin := make(chan struct{})
	var ready, ended sync.WaitGroup
	ready.Add(l.Goroutines)
	for g := range l.Goroutines {
		share := n / l.Goroutines
		if g < n%l.Goroutines {
			share++
		}
		ended.Go(func() {
			ready.Done()
			<-begin
			deeper(l.depth(), func() { errs[g] = repeat(share, l.Do) })
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	ended.Wait()
	took := time.Since(start)
	for _, err := range errs {
		if err != nil {
			return took, err
		}
	}
	return took, nil
}

// depth is how many calls deeper an operation is begun in a round. AES-GCM
// keeps its counters on the stack and takes a tenth longer where they lie
// across two pages. Whom that strikes depends on nothing but how deep in calls
// it is; so the depth is another one in each round, and covers a page in ten.
func (l *Loop) depth() int { return 13 * l.rounds % 131 }

// deeper calls do with the stack further down by some 40 bytes for each call.
//
//go:noinline
func deeper(calls int, do func()) {
	if calls > 0 {
		deeper(calls-1, do)
		return
	}
	do()
}

func repeat(n int, do func() error) error {
	for range n {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// Bench runs the operation as a Go benchmark.
func (l *Loop) Bench(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(l.Bytes))
	b.ResetTimer()
	if _, err := l.run(b.N); err != nil {
		b.Fatal(err)
	}
}
