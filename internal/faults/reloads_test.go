package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/kube-atrest/atrest/internal/faultplugin"
)

var long = flag.Bool("long", false, "reload and simulate for as long as before a release: some minutes")

// numberOf is few, or with -long many.
func numberOf(few, many int) int {
	if *long {
		return many
	}
	return few
}

// changing are the contents of a file that is changed all the time. The plugin
// steady is in each of them, swapping is now written and now read with, and
// guest comes and goes.
type changing struct{ steady, swapping, guest *faultplugin.Plugin }

func (c changing) content(i int) string {
	const (
		one = "aesgcm: {keys: [{name: one, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}"
		two = "secretbox: {keys: [{name: two, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}"
	)
	keys, both := []string{one, two}, []string{kms("swapping", c.swapping), identity}
	if i%10 < 5 { // a plugin makes a DEK each time it begins to be written with
		keys, both = []string{two, one}, []string{identity, kms("swapping", c.swapping)}
	}
	if i%3 == 0 {
		keys = append(keys, kms("guest", c.guest))
	}
	return fmt.Sprintf("# %d\n", i) + fileOf(
		rule("secrets", kms("steady", c.steady), identity),
		rule("configmaps", keys...),
		rule("pods", both...))
}

// load reads and writes a resource until ctx ends. Everything it has written
// stays readable, so that no operation may fail.
func (s *server) load(ctx context.Context, r schema.GroupResource, operations *atomic.Int64) {
	var kept [][]byte
	for i := 0; ctx.Err() == nil; i++ {
		value, err := s.write(r)
		if err != nil {
			s.t.Errorf("write %d: %v", i, err)
			return
		}
		if len(kept) < 100 {
			kept = append(kept, value)
		}
		for _, v := range [][]byte{value, kept[i%len(kept)], kept[0]} {
			if err := s.read(r, v); err != nil {
				s.t.Errorf("read %d: %v", i, err)
				return
			}
		}
		operations.Add(4)
		runtime.Gosched()
	}
}

// footprint is what a leak would make grow.
type footprint struct {
	goroutines, descriptors int
	heap                    int64
}

func footprintNow(t tb) footprint {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), descriptors(t), int64(m.HeapAlloc)}
}

// descriptors is how many this process has open, the one for asking included.
func descriptors(t tb) int {
	open, err := os.ReadDir("/dev/fd")
	require.NoError(t, err)
	return len(open)
}

// Reloads under load fail no operation, leave nothing behind, and cost a plugin
// that does not change nothing.
func TestReloadsUnderLoad(t *testing.T) {
	before := footprintNow(t)
	t.Run("reload", reloadsUnderLoad)
	requireNoMoreThan(t, before, 0)
}

func reloadsUnderLoad(t *testing.T) {
	c := changing{faultplugin.Start(t), faultplugin.Start(t), faultplugin.Start(t)}
	s := prepare(t, c.content(0))
	s.ctx = klog.NewContext(t.Context(), klog.Logger{}) // a log that is kept would look like a leak
	s.start(nil).follow()

	ctx, stop := context.WithCancel(t.Context())
	var operations atomic.Int64
	var workers sync.WaitGroup
	for _, r := range []schema.GroupResource{secrets, configmaps, {Resource: "pods"}, {Group: "apps", Resource: "deployments"}} {
		workers.Go(func() { s.load(ctx, r, &operations) })
	}
	defer workers.Wait()
	defer stop()

	const warmUp = 30 // each content, and of each more than one
	var warm footprint
	began, n := time.Now(), numberOf(200, 1000)
	for i := 1; i <= n && !t.Failed(); i++ {
		s.put(c.content(i))
		s.loaded(c.content(i))
		if i == warmUp {
			warm = footprintNow(t)
		}
	}
	requireNoMoreThan(t, warm, 20) // the reload before may still be drained
	t.Logf("%d reloads and %d operations in %v, heap %+d bytes", n, operations.Load(), time.Since(began).Round(time.Millisecond), footprintNow(t).heap-warm.heap)
	stop()
	workers.Wait()

	require.Greater(t, operations.Load(), int64(n))
	require.Equal(t, 1, c.steady.Calls().Encrypt)
	require.Equal(t, 1, c.steady.Calls().Decrypt, "to prove its DEK")
	require.LessOrEqual(t, c.swapping.Calls().Decrypt, n/10+2, "its keys stay in memory while its role changes; its DEK is proven whenever it begins to write")
	require.LessOrEqual(t, c.swapping.Calls().Encrypt, 2, "and so does its DEK")
	require.Equal(t, faultplugin.Calls{Status: c.guest.Calls().Status}, c.guest.Calls(), "a reader that nothing needs is only asked how it is")
}

// requireNoMoreThan holds what is in use now to what was before.
func requireNoMoreThan(t tb, before footprint, more int) {
	t.Helper()
	const heap = 1 << 19 // bytes: one leaked generation each time would be many times that
	require.Eventually(t, func() bool {
		now := footprintNow(t)
		return now.goroutines <= before.goroutines+more+1 && now.descriptors <= before.descriptors+more && now.heap <= before.heap+heap
	}, patience, 10*tick, "before %+v, now %+v", before, lazy(func() string { return fmt.Sprintf("%+v", footprintNow(t)) }))
}
