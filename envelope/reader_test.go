package envelope

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/kube-atrest/atrest/internal/plugin"
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
	made    []string // DEKs, by the reason
}

func (o *observed) note(what func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	what()
}

func (o *observed) StatusSeen(keyID string) { o.note(func() { o.keyIDs = append(o.keyIDs, keyID) }) }
func (o *observed) KeyIDRefused(error)      { o.note(func() { o.refused++ }) }
func (o *observed) DEKMade(reason string, _ time.Duration, err error) {
	o.note(func() {
		if err == nil {
			o.made = append(o.made, reason)
		}
	})
}
func (o *observed) Changed(h Health) { o.note(func() { o.changes = append(o.changes, h.Problem) }) }

// onlooker is a rig that is leased for reading alone, and what its observer was
// told. It has asked for Status once.
func onlooker(t *testing.T, plugin *faultyPlugin) (*rig, *observed) {
	r := &rig{t: t, plugin: plugin, clock: testingclock.NewFakeClock(testStart)}
	seen := &observed{}
	r.Lease = lease(NewProvider(plugin, Options{Clock: r.clock, Observer: seen}), Reads)
	t.Cleanup(r.End)
	require.NoError(t, r.Asked(t.Context()))
	return r, seen
}

func TestAReaderNeedsDecryptAndNothingElse(t *testing.T) {
	payload := newRig(t).write("value")

	plugin := newFaultyPlugin()
	plugin.set(func(f *faultyPlugin) { f.statusErr, f.encErr = errGone, errGone })
	r, _ := onlooker(t, plugin)
	got, stale, err := r.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
	require.Equal(t, "value", string(got))
	require.False(t, stale)

	statuses, encrypts, decrypts := plugin.calls()
	require.Equal(t, []int{1, 0, 1}, []int{statuses, encrypts, decrypts})
	require.Equal(t, map[string]Use{"1": {Reads: 1}}, r.Usage())
	h := r.Health()
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
			require.Equal(t, testStart.Add(DefaultHealthyPoll), h.Since)
			require.Equal(t, testStart, h.LastHealthy)
			require.Equal(t, HashKeyID("1"), h.KeyIDHash, "the last that was named")
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
		plugin.set(func(f *faultyPlugin) { f.statusErr = status.Error(code, "refused") })
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
		r.settle()
		require.NotEmpty(t, r.Health().Problem, "now it unwraps no more")
		r.plugin.live()
		r.read(third)
		r.pass(DefaultHealthyPoll)
		require.Empty(t, r.Health().Problem)

		r.plugin.set(func(f *faultyPlugin) { f.statusErr = status.Error(code, "refused") })
		r.pass(DefaultHealthyPoll)
		require.Empty(t, r.Health().Problem, "it begins to refuse, and still unwraps what it has")
		r.plugin.set(func(f *faultyPlugin) { f.decErr = f.statusErr })
		r.pass(24 * time.Hour)
		require.Empty(t, r.Health().Problem, "nobody has asked it for anything")
	}
}

// What Decrypt failed with is tried again at each poll, so that it ends without a
// read. A Status that is well does not end it: that may come from memory.
func TestAReaderIsWellAgainByEvidence(t *testing.T) {
	payload := newRig(t).write("value")
	for _, err := range []error{
		errGone, context.DeadlineExceeded,
		status.Error(codes.PermissionDenied, "no"), status.Error(codes.ResourceExhausted, "busy"), status.Error(codes.Internal, "odd"),
	} {
		r, _ := onlooker(t, newFaultyPlugin())
		r.plugin.set(func(f *faultyPlugin) { f.decErr = err })
		_, _, got := r.Open(t.Context(), payload, testKey)
		require.ErrorIs(t, got, err)
		r.settle()
		require.Equal(t, problemOf(err), r.Health().Problem)
		for range 10 {
			r.pass(DefaultUnhealthyPoll)
			require.Equal(t, problemOf(err), r.Health().Problem, "each poll tries it")
		}
		r.plugin.live()
		r.pass(DefaultUnhealthyPoll)
		require.Empty(t, r.Health().Problem, "nobody has read anything")
	}
}

var problemOf = plugin.ProblemOf // where a variable has the package's name

// One value that fails, with whatever, is not the plugin's matter where that
// unwraps what else it should: its own DEK, or what was read before.
func TestOneValueThatFailsSaysNothingOfThePlugin(t *testing.T) {
	payload, ciphertext := sealedBy(t, "1")
	before := newRig(t).write("before")
	for _, role := range []Role{Reads, Writes} {
		for _, err := range []error{errGone, context.DeadlineExceeded, status.Error(codes.Internal, "odd"), errDenied} {
			seen := &observed{}
			r := newRigOn(t, newFaultyPlugin(), func(o *Options) { o.Observer = seen })
			r.SetRole(role)
			r.read(before)
			r.plugin.set(func(f *faultyPlugin) { f.decErr, f.refused = err, []byte(ciphertext) })
			for range 60 {
				_, _, got := r.Open(t.Context(), payload, testKey)
				require.ErrorIs(t, got, err)
				require.Empty(t, r.Health().Problem, "%v", err)
				r.pass(10 * time.Second)
				require.Empty(t, r.Health().Problem, "%v", err)
			}
			require.Empty(t, seen.changes)
			_, _, decrypts := r.plugin.calls()
			require.LessOrEqual(t, decrypts, 60+2*61+4, "it is tried no more often than a plugin that is ill is polled")
		}
	}
}

// That a plugin has no such KEK, or refuses one that is not its own, is about the
// value that was read.
func TestWhatIsTheMatterOfAValueIsNotThePlugins(t *testing.T) {
	own, ownDEK := sealedBy(t, "1")
	foreign, foreignDEK := sealedBy(t, "foreign")
	for _, role := range []Role{Reads, Writes} {
		for _, c := range []struct {
			payload []byte
			dek     string
			err     error
		}{
			{own, ownDEK, status.Error(codes.NotFound, "destroyed")},
			{own, ownDEK, status.Error(codes.InvalidArgument, "not mine")},
			{foreign, foreignDEK, status.Error(codes.PermissionDenied, "not yours")},
			{foreign, foreignDEK, status.Error(codes.FailedPrecondition, "disabled")},
			{foreign, foreignDEK, status.Error(codes.Internal, "odd")},
		} {
			r := newRigOn(t, newFaultyPlugin())
			r.SetRole(role)
			r.plugin.set(func(f *faultyPlugin) { f.decErr, f.refused = c.err, []byte(c.dek) })
			_, _, err := r.Open(t.Context(), c.payload, testKey)
			require.ErrorIs(t, err, c.err)
			r.settle()
			require.Empty(t, r.Health().Problem, "%v", c.err)
			r.pass(DefaultHealthyPoll)
			require.Empty(t, r.Health().Problem, "%v", c.err)
			require.Equal(t, r.clock.Now(), r.Health().LastHealthy)
		}
	}
}

func TestAReaderLooksAtOnceWhenTheConnectionBreaks(t *testing.T) {
	r, _ := onlooker(t, newFaultyPlugin())
	r.plugin.die()
	r.plugin.wake <- struct{}{}
	r.pass(0)
	require.Equal(t, Unreachable, r.Health().Problem)
	r.plugin.live()
	r.plugin.wake <- struct{}{}
	r.settle()
	require.Empty(t, r.Health().Problem)
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

// Reads, roles and the end do not wait for a Status that does not come.
func TestNobodyWaitsForTheStatusOfAReader(t *testing.T) {
	payload := newRig(t).write("value")
	plugin := muteStatus{newFaultyPlugin(), make(chan struct{}), make(chan struct{}, 2)}
	l := lease(NewProvider(plugin, Options{}), Reads)
	<-plugin.asked
	_, _, err := l.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
	require.Empty(t, l.Health().Problem)

	l.SetRole(Writes)
	require.True(t, l.Health().Writes)
	require.Equal(t, Unreachable, l.Health().Problem, "what is not known is not well")
	l.SetRole(Reads)
	require.False(t, l.Health().Writes)
	l.End()
	<-plugin.ended
	require.True(t, plugin.closed)
}

func TestAProviderWithoutARoleCallsNobody(t *testing.T) {
	payload := newRig(t).write("value")
	plugin := newFaultyPlugin()
	l := lease(NewProvider(plugin, Options{}), Idle)
	_, _, err := l.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
	statuses, encrypts, decrypts := plugin.calls()
	require.Equal(t, []int{0, 0, 1}, []int{statuses, encrypts, decrypts})
	plugin.set(func(f *faultyPlugin) { f.decErr = context.DeadlineExceeded })
	_, _, err = l.Open(t.Context(), newRig(t).write("x"), testKey)
	require.ErrorIs(t, err, ErrUnavailable)
	require.Empty(t, l.Health().Problem, "nobody depends on it")
	statuses, _, _ = plugin.calls()
	require.Zero(t, statuses)
	l.End()
	require.True(t, plugin.closed)
}

func TestADegradedReaderIsReady(t *testing.T) {
	payload := newRig(t).write("value")
	plugin := newFaultyPlugin()
	plugin.die()
	l := lease(NewProvider(plugin, Options{}), Reads)
	defer l.End()
	_, _, err := l.Open(t.Context(), payload, testKey)
	require.ErrorIs(t, err, ErrUnavailable)
	h := l.Health()
	require.Equal(t, Unreachable, h.Problem)
}

// Whoever changes what a provider is used for does not change what is known of
// its plugin, nor its DEK.
func TestARoleForgetsNothing(t *testing.T) {
	r := newRig(t)
	first := r.write("a")
	r.SetRole(Reads)
	_, err := r.Seal(t.Context(), testPrefix, []byte("late"), testKey)
	require.ErrorIs(t, err, ErrWritesStopped, "a late write under the old permit")
	require.False(t, r.Health().Writes)
	require.Equal(t, HashKeyID("1"), r.Health().KeyIDHash)
	got, stale := r.read(first)
	require.Equal(t, "a", got)
	require.False(t, stale)
	r.settle()

	r.SetRole(Writes)
	r.write("at once")
	require.Empty(t, r.Health().Problem)
	r.settle()
	_, encrypts, decrypts := r.plugin.calls()
	require.Equal(t, []int{1, 1}, []int{encrypts, decrypts}, "with the DEK that there was")
	require.Equal(t, map[string]Use{"1": {Writes: 2, Reads: 1}}, r.Usage())
}

func TestTheLastHoldClosesThePlugin(t *testing.T) {
	plugin := newFaultyPlugin()
	p := NewProvider(plugin, Options{})
	first, second := p.Hold(), p.Hold()
	p.SetRole(Writes)
	require.NoError(t, p.Asked(t.Context()))
	first()
	first()
	require.False(t, plugin.closed)
	second()
	require.True(t, plugin.closed)
	_, err := p.Seal(t.Context(), testPrefix, nil, testKey)
	require.ErrorIs(t, err, ErrWritesStopped)
	_, _, err = p.Open(t.Context(), newRig(t).write("x"), testKey)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, p.Ask(t.Context()), ErrClosed)
	require.ErrorIs(t, p.Prepare(t.Context()), ErrClosed)
}
