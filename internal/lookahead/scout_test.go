package lookahead

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/etcdtest"
)

// soon is when the tests give up.
const soon = 30 * time.Second

func TestAResourceIsLookedThroughOnce(t *testing.T) {
	server, _ := objectsOf(numbered(20), func(int) int { return 1 }).serve(t)
	f := scout(t, Options{})
	for range 3 {
		f.Look(target(server))
		f.ended.Wait()
	}
	require.Equal(t, []int{1}, f.deks)
	require.Equal(t, 1, strings.Count(f.logged(), "Looked ahead"))
	require.Regexp(t, `resource="secrets" unwrapped=1 bytes=\d{4,} reads=\d+ took="\S+" endedBy=null`, f.logged())

	other, _ := objectsOf(numbered(20), func(int) int { return 2 }).serve(t)
	f.Look(target(other))
	f.ended.Wait()
	require.Equal(t, []int{1, 2}, f.deks, "another etcd has other objects under the same keys")
}

func TestResourcesAreLookedThroughSomeAtATime(t *testing.T) {
	server := etcdtest.Start(t)
	full := make(chan struct{})
	filled := sync.OnceFunc(func() { close(full) })
	var present, most, looked atomic.Int32
	f := scout(t, Options{Warm: func(context.Context, iter.Seq[[]byte]) int {
		n := present.Add(1)
		defer present.Add(-1)
		looked.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == resourcesAtOnce {
			filled()
		}
		<-full // which never comes if there are fewer at once
		return 0
	}})
	for i := range 3 * resourcesAtOnce {
		f.Look(Target{Prefix: fmt.Sprintf("/registry/%d/", i), Endpoints: []string{server.Endpoint()}})
		if i == resourcesAtOnce-1 {
			<-full
		}
	}
	f.ended.Wait()
	require.Equal(t, int32(resourcesAtOnce), most.Load())
	require.Equal(t, int32(3*resourcesAtOnce), looked.Load())
}

// A server has custom resources that come and go, and its etcd may not answer.
func TestResourcesThatWaitForTheirTurnCostLittle(t *testing.T) {
	etcd := hanging(t)
	f := scout(t, Options{})
	f.Look(target(etcd.Server))
	etcd.asked()
	before := runtime.NumGoroutine()
	for i := range 3 * mostKept {
		f.Look(Target{Prefix: fmt.Sprintf("/registry/%d/", i), Endpoints: []string{etcd.Endpoint()}})
	}
	for range resourcesAtOnce - 1 {
		etcd.asked()
	}
	require.Less(t, runtime.NumGoroutine(), before+100*resourcesAtOnce)
	f.mu.Lock()
	require.InDelta(t, mostKept, len(f.waiting), resourcesAtOnce, "some may have been taken up since")
	require.LessOrEqual(t, len(f.waiting), mostKept)
	require.Len(t, f.seen, mostKept)
	f.mu.Unlock()
	f.Close()
	require.Equal(t, resourcesAtOnce, strings.Count(f.logged(), "endedBy"))
	require.Empty(t, f.waiting)
	etcd.release()
}

func TestEveryResourceThatWaitsHasItsTurn(t *testing.T) {
	server := etcdtest.Start(t)
	f := scout(t, Options{})
	for round := range 2 { // nobody is at work any longer when the second comes
		for i := range 50 {
			f.Look(Target{Prefix: fmt.Sprintf("/registry/%d/%d/", round, i), Endpoints: []string{server.Endpoint()}})
		}
		f.ended.Wait()
		require.Equal(t, 50*(round+1), strings.Count(f.logged(), "Looked ahead"))
		require.Zero(t, f.looking)
	}
}

// Many small resources together must not cost what one large one may not.
func TestSmallResourcesShareWhatTheyAreSpared(t *testing.T) {
	server := etcdtest.Start(t)
	f := scout(t, Options{})
	all, first := int64(0), int64(0)
	for i := range 200 {
		for j := range 20 {
			key, value := fmt.Sprintf("/registry/kind-%03d/default/%d", i, j), sealed(1000*i+j, 1000)
			server.Store(key, value)
			all += int64(len(key) + len(value))
			first = max(first, int64(len(key)+len(value)+framing))
		}
		f.Look(Target{Prefix: fmt.Sprintf("/registry/kind-%03d/", i), Endpoints: []string{server.Endpoint()}})
	}
	f.ended.Wait()
	require.Greater(t, server.Served(), int64(spareBytes), "what is to spare is used")
	require.Less(t, server.Served(), all/share+spareBytes+200*(first+2*framing)+resourcesAtOnce*abreast*maxPage*first,
		"beyond it, one object of each, and what was under way")
	require.Greater(t, len(f.deks), 400)
}

func TestCloseEndsWhatIsUnderWayAndWaitsForIt(t *testing.T) {
	etcd := hanging(t)
	var under atomic.Int32
	f := scout(t, Options{Warm: func(_ context.Context, values iter.Seq[[]byte]) int {
		under.Add(1)
		defer under.Add(-1)
		for range values {
		}
		return 0
	}})
	for i := range 2 * resourcesAtOnce { // half of them wait for their turn
		f.Look(Target{Prefix: fmt.Sprintf("/registry/%d/", i), Endpoints: []string{etcd.Endpoint()}})
	}
	for range resourcesAtOnce {
		etcd.asked()
	}
	f.Close()
	require.Zero(t, under.Load())
	require.Equal(t, resourcesAtOnce, strings.Count(f.logged(), `endedBy="context canceled"`), "the others did not begin")
	require.Eventually(t, func() bool { return etcd.Connections() == 0 }, soon, time.Millisecond)

	f.Look(Target{Prefix: "/registry/later/", Endpoints: []string{etcd.Endpoint()}})
	f.Close()
	require.Equal(t, resourcesAtOnce, strings.Count(f.logged(), "endedBy"))
	require.Len(t, f.seen, 2*resourcesAtOnce)
	etcd.release()
}

// hangs is an etcd that does not answer.
type hangs struct {
	*etcdtest.Server
	asked   func() // waits for a request
	release func()
}

func hanging(t *testing.T) hangs {
	server, asked, over := etcdtest.Start(t), make(chan struct{}, 100), make(chan struct{})
	server.Before(func(*pb.RangeRequest) error {
		asked <- struct{}{}
		<-over
		return nil
	})
	release := sync.OnceFunc(func() { close(over) })
	t.Cleanup(release)
	return hangs{server, func() { <-asked }, release}
}

func TestNoResourceTakesMoreThanAMinute(t *testing.T) {
	etcd, clock := hanging(t), clocktesting.NewFakeClock(time.Unix(0, 0))
	f := scout(t, Options{Clock: clock})
	f.Look(target(etcd.Server))
	etcd.asked()
	clock.Step(time.Minute - 1)
	require.Zero(t, strings.Count(f.logged(), "endedBy"))
	clock.Step(1)
	f.ended.Wait()
	require.Contains(t, f.logged(), `took="1m0s" endedBy="it took too long"`)
	require.False(t, clock.HasWaiters())
}

func TestNothingIsLeftOfAResourceThatIsDone(t *testing.T) {
	server, clock := etcdtest.Start(t), clocktesting.NewFakeClock(time.Unix(0, 0))
	f := scout(t, Options{Clock: clock})
	f.Look(target(server))
	f.ended.Wait()
	require.False(t, clock.HasWaiters(), "no timer")
	require.NotEmpty(t, server.Requests())
	require.Eventually(t, func() bool { return server.Connections() == 0 }, soon, time.Millisecond)
}

func TestWhatFailsIsLogged(t *testing.T) {
	server, _ := objectsOf(numbered(2000), func(i int) int { return i }).serve(t)
	var reads atomic.Int64 // several are under way at once
	server.Before(func(*pb.RangeRequest) error {
		if reads.Add(1) == 5 {
			return errors.New("no leader today")
		}
		return nil
	})
	f := scout(t, Options{})
	f.Look(target(server))
	f.ended.Wait()
	require.NotEmpty(t, f.deks, "what was found before is of use")
	require.Regexp(t, fmt.Sprintf(`unwrapped=%d .*endedBy=".*read from etcd: .*no leader today`, len(f.deks)), f.logged())
	require.Less(t, len(server.Requests()), 5+abreast, "that is the end")
}

func TestASearchEndsWithWhoeverTakesItsValues(t *testing.T) {
	for _, enough := range []int{1, 2, 10, 50} {
		server, _ := objectsOf(numbered(2000), func(i int) int { return i }).serve(t)
		f := scout(t, Options{Warm: func(_ context.Context, values iter.Seq[[]byte]) int {
			n := 0
			for range values {
				if n++; n == enough {
					break
				}
			}
			return n
		}})
		f.Look(target(server))
		f.ended.Wait()
		require.Contains(t, f.logged(), fmt.Sprintf("unwrapped=%d ", enough))
		require.LessOrEqual(t, len(server.Requests()), 10+enough)
	}
}

func TestTheEtcdIsReachedAsTheAPIServerReachesIt(t *testing.T) {
	a, other := etcdtest.NewAuthority(t), etcdtest.NewAuthority(t)
	server := a.Start()
	server.Store(prefix+"default/x", sealed(7, 10))
	cert, key, _ := a.Pair("client")
	gone := filepath.Join(t.TempDir(), "gone")
	for name, c := range map[string]struct {
		change func(*Target)
		fails  string
	}{
		"as it should be":  {func(*Target) {}, ""},
		"no CA of its own": {func(t *Target) { t.CAFile = "" }, "certificate"},
		"another CA":       {func(t *Target) { t.CAFile = other.File }, "certificate"},
		"no certificate":   {func(t *Target) { t.CertFile, t.KeyFile = "", "" }, "certificate"},
		"no such file":     {func(t *Target) { t.CAFile = gone }, "TLS for etcd: open " + gone},
		"no endpoint":      {func(t *Target) { t.Endpoints = nil }, "client of etcd: "},
	} {
		t.Run(name, func(t *testing.T) {
			target := Target{Resource: "secrets", Prefix: prefix, Endpoints: []string{server.Endpoint()}, CertFile: cert, KeyFile: key, CAFile: a.File}
			c.change(&target)
			clock := clocktesting.NewFakeClock(time.Unix(0, 0))
			f := scout(t, Options{Clock: clock})
			f.Look(target)
			if c.fails == "certificate" { // a connection is tried until the time is over
				require.Eventually(t, clock.HasWaiters, soon, time.Millisecond)
				clock.Step(within)
			}
			f.ended.Wait()
			if c.fails == "" {
				require.Equal(t, []int{7}, f.deks)
				return
			}
			require.Empty(t, f.deks)
			require.Contains(t, f.logged(), "endedBy=\"")
			if c.fails != "certificate" {
				require.Contains(t, f.logged(), c.fails)
			}
		})
	}
	_, err := os.Stat(gone)
	require.ErrorIs(t, err, os.ErrNotExist)
}
