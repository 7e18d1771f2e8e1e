package envelope

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	testingclock "k8s.io/utils/clock/testing"
)

// observed notes what an observer is told of a plugin that is only read with.
type observed struct {
	silent
	mu      sync.Mutex
	keyIDs  []string
	refused int
	changes []Problem
}

func (o *observed) note(what func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	what()
}

func (o *observed) StatusSeen(keyID string) { o.note(func() { o.keyIDs = append(o.keyIDs, keyID) }) }
func (o *observed) KeyIDRefused(error)      { o.note(func() { o.refused++ }) }
func (o *observed) Changed(h Health)        { o.note(func() { o.changes = append(o.changes, h.Problem) }) }

// onlooker is a rig that is leased for reading alone, and what its observer was
// told. It has asked for Status once.
func onlooker(t *testing.T, plugin *faultyPlugin) (*rig, *observed) {
	r := &rig{t: t, plugin: plugin, clock: testingclock.NewFakeClock(testStart)}
	seen := &observed{}
	r.Lease = NewProvider("test", plugin, Options{Clock: r.clock, Observer: seen}).LeaseToRead()
	t.Cleanup(r.End)
	require.NoError(t, r.watcher.Load().Asked(t.Context()))
	return r, seen
}

func TestAReaderNeedsDecryptAndNothingElse(t *testing.T) {
	payload := newRig(t).write("value")

	plugin := newFaultyPlugin()
	plugin.set(func(f *faultyPlugin) { f.statusErr, f.encErr = errGone, errGone })
	r, _ := onlooker(t, plugin)
	require.NoError(t, r.Probed(t.Context()))
	got, stale, err := r.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
	require.Equal(t, "value", string(got))
	require.False(t, stale)

	statuses, encrypts, decrypts := plugin.calls()
	require.Equal(t, []int{1, 0, 1}, []int{statuses, encrypts, decrypts})
	require.Equal(t, map[string]Use{"1": {Reads: 1}}, r.Usage())
	h := r.Health()
	require.True(t, h.Ready())
	require.False(t, h.Writes)
	require.Equal(t, 1, h.CachedDEKs)
	require.Equal(t, uint64(1), h.Reads)
	_, err = r.Seal(t.Context(), testPrefix, nil, testKey)
	require.ErrorIs(t, err, ErrWritesStopped)
}

// Status is asked of a plugin that is only read with as of one that is written
// with, and nothing else comes of it than that it is told.
func TestAReaderAsksForStatus(t *testing.T) {
	r, seen := onlooker(t, newFaultyPlugin())
	require.Equal(t, Health{Since: testStart, LastHealthy: testStart, KeyIDHash: HashKeyID("1")}, r.Health())

	r.pass(59 * time.Second)
	require.Equal(t, []string{"1"}, seen.keyIDs, "not before 60 s while healthy")
	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "2" })
	r.pass(61 * time.Second)
	require.Equal(t, HashKeyID("2"), r.Health().KeyIDHash)
	require.Equal(t, []string{"1", "2"}, seen.keyIDs)
	require.Equal(t, testStart.Add(2*time.Minute), r.Health().LastHealthy)
	require.Equal(t, testStart, r.Health().Since)

	_, encrypts, decrypts := r.plugin.calls()
	require.Zero(t, encrypts+decrypts)
	require.Empty(t, seen.changes)
	require.True(t, r.Health().WritesUntil.IsZero())
}

// What is wrong with Status degrades the provider and ends by itself.
func TestAProblemOfStatusDegradesAReader(t *testing.T) {
	payload := newRig(t).write("value")
	for problem, fault := range map[Problem]func(*faultyPlugin){
		Unreachable: func(f *faultyPlugin) { f.statusErr = errGone },
		TimedOut:    func(f *faultyPlugin) { f.statusErr = context.DeadlineExceeded },
		Denied:      func(f *faultyPlugin) { f.statusErr = status.Error(codes.PermissionDenied, "no") },
		Unhealthy:   func(f *faultyPlugin) { f.status.Healthz = "KMS is away" },
		BadVersion:  func(f *faultyPlugin) { f.status.Version = "v2beta1" },
		BadKeyID:    func(f *faultyPlugin) { f.status.KeyID = "" },
	} {
		t.Run(string(problem), func(t *testing.T) {
			r, seen := onlooker(t, newFaultyPlugin())
			r.plugin.set(fault)
			r.pass(DefaultHealthyPoll)
			h := r.Health()
			require.Equal(t, problem, h.Problem)
			require.ErrorContains(t, h.Err, "status: ")
			require.Equal(t, r.clock.Now(), h.Since)
			require.Equal(t, testStart, h.LastHealthy)
			require.Equal(t, HashKeyID("1"), h.KeyIDHash, "the last that was named")
			require.True(t, h.Ready())
			require.Equal(t, problem == BadKeyID, seen.refused == 1)
			if problem != Denied { // see below
				r.read(payload)
				r.pass(DefaultUnhealthyPoll)
				require.Equal(t, problem, r.Health().Problem, "that it unwraps does not make it well")
			}

			r.plugin.set(healthy("1"))
			r.pass(DefaultUnhealthyPoll)
			require.Empty(t, r.Health().Problem)
			require.Equal(t, r.clock.Now(), r.Health().Since)
			require.Equal(t, []Problem{problem, ""}, seen.changes)
		})
	}
}

// A plugin that is only read with may refuse Status. That counts until it is
// seen to unwrap all the same.
func TestAReaderMayBeRefusedStatusByAPluginThatUnwraps(t *testing.T) {
	for _, code := range []codes.Code{codes.PermissionDenied, codes.Unimplemented} {
		first, second, third := newRig(t).write("a"), newRig(t).write("b"), newRig(t).write("c")
		plugin := newFaultyPlugin()
		plugin.statusErr = status.Error(code, "refused")
		r, seen := onlooker(t, plugin)
		require.NotEmpty(t, r.Health().Problem)

		r.read(first)
		r.pass(DefaultUnhealthyPoll)
		require.Empty(t, r.Health().Problem)
		require.Zero(t, r.Health().LastHealthy, "Status was never well")
		r.pass(DefaultHealthyPoll)
		require.Empty(t, r.Health().Problem)
		require.Len(t, seen.changes, 2)

		r.plugin.set(func(f *faultyPlugin) { f.decErr = f.statusErr })
		_, _, err := r.Open(t.Context(), second, testKey)
		require.Error(t, err)
		require.NotEmpty(t, r.Health().Problem, "now it unwraps no more")
		r.plugin.live()
		r.read(third)
		r.pass(DefaultHealthyPoll)
		require.Empty(t, r.Health().Problem)

		r.plugin.set(func(f *faultyPlugin) { f.statusErr = status.Error(code, "refused") })
		r.pass(DefaultHealthyPoll)
		require.NotEmpty(t, r.Health().Problem, "it begins to refuse, and has unwrapped nothing since")
	}
}

// A Status that is well shows that the plugin can be reached, and no more.
func TestWhatAHealthyStatusSaysOfDecrypt(t *testing.T) {
	payload := newRig(t).write("value")
	for err, ends := range map[error]bool{
		errGone: true,
		status.Error(codes.PermissionDenied, "no"): false,
		status.Error(codes.NotFound, "destroyed"):  false,
		context.DeadlineExceeded:                   false,
	} {
		r, _ := onlooker(t, newFaultyPlugin())
		r.plugin.set(func(f *faultyPlugin) { f.decErr = err })
		_, _, got := r.Open(t.Context(), payload, testKey)
		require.ErrorIs(t, got, err)
		require.ErrorContains(t, r.Health().Err, "decrypt: ")
		r.pass(DefaultHealthyPoll)
		require.Equal(t, ends, r.Health().Problem == "", "%v", err)

		r.plugin.live()
		r.read(payload)
		require.Empty(t, r.Health().Problem)
	}
}

func TestAReaderLooksAtOnceWhenTheConnectionBreaks(t *testing.T) {
	r, _ := onlooker(t, newFaultyPlugin())
	r.plugin.die()
	r.plugin.wake <- struct{}{}
	require.Eventually(t, func() bool { return r.Health().Problem == Unreachable }, testWait, testTick)
	r.plugin.live()
	r.plugin.wake <- struct{}{}
	require.Eventually(t, func() bool { return r.Health().Problem == "" }, testWait, testTick)
}

// muteStatus answers Status when the call is ended, and then tells.
type muteStatus struct {
	*faultyPlugin
	asked, ended chan struct{}
}

func (p muteStatus) Status(ctx context.Context) (Status, error) {
	p.asked <- struct{}{}
	<-ctx.Done()
	p.ended <- struct{}{}
	return Status{}, ctx.Err()
}

// Reads and leases do not wait for a Status that does not come.
func TestNobodyWaitsForTheStatusOfAReader(t *testing.T) {
	payload := newRig(t).write("value")
	plugin := muteStatus{newFaultyPlugin(), make(chan struct{}), make(chan struct{}, 2)}
	l := NewProvider("test", plugin, Options{}).LeaseToRead()
	<-plugin.asked
	require.NoError(t, l.Probed(t.Context()))
	_, _, err := l.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
	require.Empty(t, l.Health().Problem)

	write := l.LeaseToWrite()
	<-plugin.ended
	<-plugin.asked
	require.True(t, l.Health().Writes)
	write.End()
	<-plugin.ended
	<-plugin.asked
	require.False(t, l.Health().Writes)
	l.End()
	<-plugin.ended
	require.True(t, plugin.closed)
}

func TestOneThatHoldsAProviderCallsNobody(t *testing.T) {
	payload := newRig(t).write("value")
	plugin := newFaultyPlugin()
	l := NewProvider("test", plugin, Options{}).Hold()
	require.NoError(t, l.Probed(t.Context()))
	_, _, err := l.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
	statuses, encrypts, decrypts := plugin.calls()
	require.Equal(t, []int{0, 0, 1}, []int{statuses, encrypts, decrypts})
	plugin.die()
	_, _, err = l.Open(t.Context(), newRig(t).write("x"), testKey)
	require.ErrorIs(t, err, ErrUnavailable)
	require.Equal(t, Unreachable, l.Health().Problem)
	l.End()
	require.True(t, plugin.closed)
}

func TestADegradedReaderIsReady(t *testing.T) {
	payload := newRig(t).write("value")
	plugin := newFaultyPlugin()
	plugin.die()
	l := NewProvider("reader", plugin, Options{}).LeaseToRead()
	defer l.End()
	_, _, err := l.Open(t.Context(), payload, testKey)
	require.ErrorIs(t, err, ErrUnavailable)
	h := l.Health()
	require.Equal(t, Unreachable, h.Problem)
	require.True(t, h.Ready())
}

func TestRolesFollowTheLeases(t *testing.T) {
	plugin := newFaultyPlugin()
	p := NewProvider("test", plugin, Options{})
	read := p.LeaseToRead()
	write := p.LeaseToWrite()
	require.NoError(t, p.Probed(t.Context()))
	out, err := p.Seal(t.Context(), testPrefix, []byte("x"), testKey)
	require.NoError(t, err)

	again := p.LeaseToWrite()
	write.End()
	write.End()
	require.True(t, p.Health().Writes, "somebody still writes")
	_, encrypts, _ := plugin.calls()
	require.Equal(t, 1, encrypts, "and shares the DEK")

	again.End()
	require.False(t, p.Health().Writes)
	_, _, err = p.Open(t.Context(), out[len(testPrefix):], testKey)
	require.NoError(t, err)
	require.False(t, plugin.closed)

	read.End()
	require.True(t, plugin.closed)
	fresh := newRig(t).write("x")
	_, _, err = p.Open(t.Context(), fresh, testKey)
	require.ErrorIs(t, err, ErrClosed)
}
