package plugin

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"
)

// Calls that fail while the plugin may not be asked again yet cost no memory each.
func TestWakesThatWaitCostNoMemory(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Now())
	wake := make(chan struct{})
	f := Follow(Config{Clock: clock, Healthy: time.Minute, Unhealthy: 10 * time.Second, Window: time.Hour, Wake: wake,
		Ask: func(context.Context, Role) {}, Changed: func() {}, Close: func() {}})
	end := f.Hold()
	defer end()
	f.SetRole(Reads)
	require.NoError(t, f.Asked(t.Context()))
	for range 8 { // the bucket is spent, and the wakes bring no news
		wake <- struct{}{}
		require.NoError(t, f.Do(t.Context(), func(context.Context) {}))
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range 1_000_000 {
		wake <- struct{}{}
	}
	require.NoError(t, f.Do(t.Context(), func(context.Context) {}))
	after := heap()
	t.Logf("%d KiB more", (int64(after)-int64(before))>>10)
	require.Less(t, int64(after)-int64(before), int64(1<<20))
}
