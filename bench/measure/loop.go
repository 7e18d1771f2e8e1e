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

	n int // operations that fill a slice, found in the first round
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
		runtime.GC()
	}
	if _, err := l.run(l.n/8 + 1); err != nil { // caches, fresh pages, the first use of a key
		return nil, fmt.Errorf("%s: %w", l.Name, err)
	}
	before := look()
	took, err := l.run(l.n)
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

// fill finds how many operations take as long as slice. The shortest of some
// tries counts: the others did something for the first time, or were interrupted.
func (l *Loop) fill(slice time.Duration) (int, error) {
	for n := 1; ; n *= 2 {
		shortest := time.Duration(math.MaxInt64)
		for range 3 {
			took, err := l.run(n)
			if err != nil {
				return 0, err
			}
			shortest = min(shortest, took)
		}
		if shortest >= slice/4 {
			return max(1, int(float64(n)*float64(slice)/float64(shortest))), nil
		}
	}
}

// run does n operations and tells how long they took.
func (l *Loop) run(n int) (time.Duration, error) {
	if l.Goroutines <= 1 {
		start := time.Now()
		err := repeat(n, l.Do)
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
			errs[g] = repeat(share, l.Do)
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
