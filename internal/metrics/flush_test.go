package metrics

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/internal/tally"
)

// held reports whether counts, or a latency, of a prefix are held.
func held(prefix string) bool {
	counted.Lock()
	defer counted.Unlock()
	_, timed := counted.latency[kind{direction: ToStorage, prefix: prefix}]
	return timed || slices.ContainsFunc(counted.all, func(c *counts) bool { return c.prefix == prefix })
}

// record counts n operations that nobody holds afterwards.
func record(prefix string, n int) {
	o := NewOperation(secrets, ToStorage, prefix)
	for range n {
		o.Record(tally.Pick(), Now(), nil)
	}
}

func TestWhatAnOperationCountedIsFlushedWhenItIsGoneAndThenForgotten(t *testing.T) {
	prefix := prefixFor(t)
	record(prefix, 3)
	require.True(t, held(prefix))
	require.Eventually(t, func() bool {
		runtime.GC()
		Flush()
		return !held(prefix)
	}, 10*time.Second, time.Millisecond)
	require.InDelta(t, 3, totalOf(t, ToStorage, prefix, "OK"), 0)
	require.InDelta(t, 3, timedOf(t, ToStorage, prefix), 0)
}

func TestAnOperationInUseIsKept(t *testing.T) {
	prefix := prefixFor(t)
	first, second := NewOperation(secrets, ToStorage, prefix), NewOperation(secrets, ToStorage, prefix)
	for n := range 3 {
		first.Record(tally.Pick(), Now(), nil)
		second.Record(tally.Pick(), Now(), nil)
		runtime.GC()
		Flush()
		require.InDelta(t, 2*(n+1), totalOf(t, ToStorage, prefix, "OK"), 0)
		require.InDelta(t, 2*(n+1), timedOf(t, ToStorage, prefix), 0)
		require.True(t, held(prefix))
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(second)
}

// Its latency is shared by whatever has the direction and the prefix, when one
// of them is gone too, and when one comes after a Flush.
func TestWhatSharesALatencyIsTimedAsLongAsOneIsInUse(t *testing.T) {
	prefix := prefixFor(t)
	first := NewOperation(secrets, ToStorage, prefix)
	first.Record(tally.Pick(), Now(), nil)
	record(prefix, 1)
	runtime.GC()
	Flush()
	second := NewOperation(secrets, ToStorage, prefix)
	second.Record(tally.Pick(), Now(), nil)
	first.Record(tally.Pick(), Now(), nil)
	Flush()
	require.InDelta(t, 4, timedOf(t, ToStorage, prefix), 0)
	runtime.KeepAlive(first)
	runtime.KeepAlive(second)
}

func TestAnOperationThatNeverSucceededHoldsNothing(t *testing.T) {
	prefix := prefixFor(t)
	o := NewOperation(&schema.GroupResource{Group: "example.com", Resource: "widgets"}, ToStorage, prefix)
	require.False(t, held(prefix))
	runtime.KeepAlive(o)
}

// Operations begin, count, and are let go, beside Flush and the garbage
// collector: each count arrives.
func TestNoCountIsLostOnTheWay(t *testing.T) {
	const workers, operations, each, sharing = 4, 50, 100, 1000
	prefix := prefixFor(t)
	shared := NewOperation(secrets, ToStorage, prefix)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range operations {
				record(prefix, each)
			}
		})
		wg.Go(func() {
			for range sharing {
				shared.Record(tally.Pick(), Now(), nil)
			}
		})
	}
	for range 20 {
		runtime.GC()
		Flush()
	}
	wg.Wait()
	Flush()
	require.InDelta(t, workers*(operations*each+sharing), totalOf(t, ToStorage, prefix, "OK"), 0)
	require.InDelta(t, workers*(operations*each+sharing), timedOf(t, ToStorage, prefix), 0)
}
