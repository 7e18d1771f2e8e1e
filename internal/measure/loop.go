package measure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Loop is an operation that is repeated for the time of a slice.
type Loop struct {
	Name
	// Do is one operation. It is called by Goroutines goroutines at once, one
	// if that is 0.
	Do         func() error
	Goroutines int

	n      int // operations that fill a slice, found in the first round
	rounds int // that were measured
}

var _ Contestant = (*Loop)(nil)

// Round repeats the operation.
func (l *Loop) Round(_ context.Context, slice time.Duration, book *Book) (err error) {
	if l.n == 0 {
		if l.n, err = l.fill(slice); err != nil {
			return err
		}
	}
	if _, err := l.Run(l.n); err != nil {
		return err
	}
	// Now caches are warm, and there is as much free memory as the same again
	// will need, that is known to the system. The runtime gives free memory back
	// when there is more of it than was in use at the last collection, and to
	// touch a page again costs more than to encrypt it: without this, whoever
	// needs more memory in a slice would pay for that and the others would not.
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := processorTime()
	took, err := l.Run(l.n)
	cpu = processorTime() - cpu
	runtime.ReadMemStats(&after)
	l.rounds++
	n := float64(l.n)
	book.Add(l.Name, Figure{NsPerOp, float64(took) / n}, Figure{CPUNsPerOp, float64(cpu) / n},
		Figure{BytesPerOp, math.Floor(float64(after.TotalAlloc-before.TotalAlloc) / n)}, // what is left over is the background's
		Figure{AllocsPerOp, math.Floor(float64(after.Mallocs-before.Mallocs) / n)})
	return err
}

// processorTime is the time that processors spent on this process, 0 if the
// system does not tell.
func processorTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// fill finds how many operations take as long as slice.
func (l *Loop) fill(slice time.Duration) (int, error) {
	for n := 1; ; n *= 2 {
		took, err := l.Run(n)
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
		took, err := l.Run(n)
		if err != nil {
			return 0, err
		}
		shortest = min(shortest, took)
	}
	return shortest, nil
}

// Run does n operations and tells how long they took.
func (l *Loop) Run(n int) (time.Duration, error) {
	goroutines := max(1, l.Goroutines)
	errs := make([]error, goroutines)
	begin := make(chan struct{})
	var ready, ended sync.WaitGroup
	for g := range goroutines {
		share := n / goroutines
		if g < n%goroutines {
			share++
		}
		ready.Add(1)
		ended.Go(func() {
			ready.Done()
			<-begin
			deeper(l.depth(), func() {
				for i := 0; i < share && errs[g] == nil; i++ {
					errs[g] = l.Do()
				}
			})
		})
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	ended.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return took, fmt.Errorf("%s %s, %s: %w", l.Case, l.Params, l.Side, err)
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
