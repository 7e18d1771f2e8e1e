package kmsv1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apiserver/pkg/storage/value"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/envelope"
)

func TestEveryWriteHasItsOwnDEKAndItsOwnCall(t *testing.T) {
	r := newRig(t)
	before, _ := r.plugin.calls()
	probes := len(r.plugin.given())
	for range 5 {
		r.write("value")
	}
	encrypts, _ := r.plugin.calls()
	require.Equal(t, 5, encrypts-before)
	seen := map[string]bool{}
	for _, secret := range r.plugin.given()[probes:] {
		seen[string(secret)] = true
	}
	require.Len(t, seen, 5)
	require.Equal(t, 5, r.seen.generated)
}

func TestACachedDEKOutlivesThePlugin(t *testing.T) {
	for size, outlives := range map[int]bool{0: true, 1: true, 1000: true, -1: false} {
		r := newRig(t, func(o *Options) { o.CacheSize = size })
		payload := r.write("value")
		if !outlives {
			require.True(t, verdictOf(r.Open(t.Context(), payload, testKey)).opened)
		}
		r.plugin.die()
		got, _, err := r.Open(t.Context(), payload, testKey)
		if !outlives {
			require.ErrorIs(t, err, envelope.ErrUnavailable)
			require.Zero(t, r.seen.misses, "a cache that is off misses nothing")
			continue
		}
		require.NoError(t, err, "cache size %d", size)
		require.Equal(t, "value", string(got))
	}
}

func TestTheCacheHoldsSoManyAndDropsTheLeastRecentlyRead(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CacheSize = 3 })
	a, b, c := r.write("a"), r.write("b"), r.write("c")
	require.InDelta(t, 1, r.seen.fill, 0)
	require.True(t, verdictOf(r.Open(t.Context(), a, testKey)).opened)
	d := r.write("d") // b goes
	require.Equal(t, 3, r.Health().CachedDEKs)
	r.plugin.die()
	for _, kept := range [][]byte{a, c, d} {
		require.True(t, verdictOf(r.Open(t.Context(), kept, testKey)).opened)
	}
	_, _, err := r.Open(t.Context(), b, testKey)
	require.ErrorIs(t, err, envelope.ErrUnavailable)

	r.plugin.live()
	require.True(t, verdictOf(r.Open(t.Context(), b, testKey)).opened)
	require.Equal(t, 2, r.seen.misses)
}

func TestDEKsOfTheMaximumAgeAreDropped(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKAge, o.HealthyPoll = time.Hour, never })
	r.settle()
	first := r.write("first")
	r.clock.Step(time.Second)
	second := r.write("second")
	r.clock.Step(time.Hour - time.Second)
	r.DropAged()
	require.Equal(t, 2, r.Health().CachedDEKs, "not before its time")
	r.clock.Step(1)
	require.True(t, verdictOf(r.Open(t.Context(), first, testKey)).opened, "used or not")
	r.DropAged()
	require.Equal(t, 1, r.Health().CachedDEKs)
	require.InDelta(t, 0.001, r.seen.fill, 0)
	told := r.seen.fills
	r.DropAged()
	require.Equal(t, told, r.seen.fills, "nothing was dropped")
	r.plugin.die()
	require.True(t, verdictOf(r.Open(t.Context(), second, testKey)).opened)
	require.False(t, verdictOf(r.Open(t.Context(), first, testKey)).opened)
}

func TestWithoutAMaximumAgeNothingIsDropped(t *testing.T) {
	for _, size := range []int{0, -1} {
		r := newRig(t, func(o *Options) { o.CacheSize, o.HealthyPoll = size, 20000*time.Hour })
		r.write("value")
		before := r.Health().CachedDEKs
		r.settle()
		r.clock.Step(10000 * time.Hour)
		r.DropAged()
		require.Equal(t, before, r.Health().CachedDEKs)
	}
}

// A cache far too small still reads everything.
func TestMoreValuesThanTheCacheHolds(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CacheSize = 10 })
	var payloads [][]byte
	for i := range 40 {
		payloads = append(payloads, r.write(fmt.Sprint(i)))
	}
	for i, payload := range payloads {
		got, _, err := r.Open(t.Context(), payload, testKey)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(got))
	}
	require.Equal(t, 10, r.Health().CachedDEKs)
}

func TestManyReadersOfOneColdDEKAskOnce(t *testing.T) {
	payload := newRig(t).write("value")
	for _, size := range []int{0, -1} {
		l, plugin := reader(t, func(o *Options) { o.CacheSize = size })
		plugin.decrypting = make(chan struct{})
		var wg sync.WaitGroup
		started := make(chan struct{}, 200)
		for range 200 {
			wg.Go(func() {
				started <- struct{}{}
				got, _, err := l.Open(t.Context(), payload, testKey)
				assert.NoError(t, err)
				assert.Equal(t, "value", string(got))
			})
		}
		for range 200 {
			<-started
		}
		require.Eventually(t, func() bool { _, n := plugin.calls(); return n > 0 }, testWait, testTick)
		close(plugin.decrypting)
		wg.Wait()
		if size == 0 {
			_, decrypts := plugin.calls()
			require.Equal(t, 1, decrypts)
		}
	}
}

// The reader who came first may go away and use its buffer again: the rest
// still get their DEK.
func TestAReaderThatGivesUpDoesNotEndTheCall(t *testing.T) {
	payload := newRig(t).write("value")
	l, plugin := reader(t)
	plugin.decrypting = make(chan struct{})
	ctx, giveUp := context.WithCancel(t.Context())
	gone := make(chan error)
	buffer := bytes.Clone(payload)
	go func() {
		_, _, err := l.Open(ctx, buffer, testKey)
		gone <- err
	}()
	require.Eventually(t, func() bool { _, n := plugin.calls(); return n == 1 }, testWait, testTick)
	giveUp()
	err := <-gone
	require.ErrorIs(t, err, envelope.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	clear(buffer)

	close(plugin.decrypting)
	got, _, err := l.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
	require.Equal(t, "value", string(got))
	_, decrypts := plugin.calls()
	require.Equal(t, 1, decrypts)
}

// An outage, an unknown key and a damaged value are three things to a caller.
// What is the matter of one value says nothing of the plugin.
func TestWhatFailsIsTold(t *testing.T) {
	payload := newRig(t).write("value")
	for err, want := range map[error]struct {
		means   error
		problem envelope.Problem
	}{
		errGone: {envelope.ErrUnavailable, envelope.Unreachable},
		status.Error(codes.NotFound, "destroyed"):            {envelope.ErrUnknownKEK, ""},
		status.Error(codes.InvalidArgument, "not mine"):      {envelope.ErrForeignDEK, ""},
		status.Error(codes.PermissionDenied, "no"):           {envelope.ErrUnavailable, envelope.Denied},
		status.Error(codes.FailedPrecondition, "in the bin"): {envelope.ErrUnavailable, envelope.KeyDisabled},
		fmt.Errorf("odd"): {envelope.ErrUnavailable, envelope.Failed},
	} {
		l, plugin := reader(t)
		plugin.set(func(f *faultyPlugin) { f.decErr = err })
		_, _, got := l.Open(t.Context(), payload, testKey)
		require.ErrorIs(t, got, want.means)
		require.ErrorIs(t, got, err)
		require.Equal(t, errors.Is(want.means, envelope.ErrCorrupt), errors.Is(got, envelope.ErrCorrupt))
		require.Equal(t, status.Code(err), status.Code(got), "the code is there for the metric")
		require.Eventually(t, func() bool { return l.Health().Problem == want.problem }, testWait, testTick)

		plugin.live()
		_, _, got = l.Open(t.Context(), payload, testKey)
		require.NoError(t, got)
		require.Eventually(t, func() bool { return l.Health().Problem == "" }, testWait, testTick)
	}
}

// A reader is well again by itself: what failed is tried again at the polls.
func TestAReaderIsWellAgainWhenThePluginIs(t *testing.T) {
	payload := newRig(t).write("value")
	for _, err := range []error{errGone, status.Error(codes.DeadlineExceeded, ""), fmt.Errorf("odd")} {
		clock := testingclock.NewFakeClock(testStart)
		l, plugin := reader(t, func(o *Options) { o.Clock = clock })
		r := rig{held: l, t: t, clock: clock, plugin: plugin}
		plugin.set(func(p *faultyPlugin) { p.decErr = err })
		_, _, got := l.Open(t.Context(), payload, testKey)
		require.ErrorIs(t, got, err)
		require.Eventually(t, func() bool { return l.Health().Problem != "" }, testWait, testTick)
		r.pass(envelope.DefaultUnhealthyPoll)
		require.NotEmpty(t, l.Health().Problem, "it still does not unwrap")

		plugin.live()
		r.clock.Step(envelope.DefaultUnhealthyPoll)
		require.Eventually(t, func() bool { return l.Health().Problem == "" }, testWait, testTick)
		_, decrypts := plugin.calls()
		r.clock.Step(never)
		require.NoError(t, l.followed.Do(t.Context(), func(context.Context) {}))
		_, after := plugin.calls()
		require.Equal(t, decrypts, after, "then nobody asks again")
	}
}

func TestAnAnswerThatIsNoKeyIsTold(t *testing.T) {
	payload := newRig(t).write("value")
	for _, answer := range [][]byte{{}, make([]byte, 15), make([]byte, 33)} {
		l, plugin := reader(t)
		plugin.set(func(f *faultyPlugin) { f.unwrapped = answer })
		_, _, err := l.Open(t.Context(), payload, testKey)
		require.ErrorIs(t, err, envelope.ErrUnavailable)
		require.ErrorContains(t, err, "the plugin's answer is no key")
		require.Eventually(t, func() bool { return l.Health().Problem == envelope.BadAnswer }, testWait, testTick)
	}
}

// A plugin that once answers with another key costs no more than the reads of
// that time; a key that has opened its value is not lost to a damaged copy of it.
func TestAWrongKeyIsNotKept(t *testing.T) {
	payload := newRig(t).write("value")
	l, plugin := reader(t)
	plugin.set(func(f *faultyPlugin) { f.unwrapped = make([]byte, dekSize) })
	_, _, err := l.Open(t.Context(), payload, testKey)
	require.ErrorIs(t, err, envelope.ErrCorrupt)
	require.Zero(t, l.Health().CachedDEKs)

	plugin.set(func(f *faultyPlugin) { f.unwrapped = nil })
	got, _, err := l.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
	require.Equal(t, "value", string(got))
	_, _, err = l.Open(t.Context(), payload, otherKey)
	require.ErrorIs(t, err, envelope.ErrCorrupt)
	plugin.die()
	_, _, err = l.Open(t.Context(), payload, testKey)
	require.NoError(t, err)
}

func TestAWriteFailsWithThePlugin(t *testing.T) {
	r := newRig(t)
	r.plugin.die()
	_, err := r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.ErrorIs(t, err, envelope.ErrUnavailable)
	require.ErrorIs(t, err, errGone)
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Zero(t, r.Health().CachedDEKs)
}

// What becomes of a write is known at once, long before the next poll.
func TestAWriteTellsHowThePluginIs(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HealthyPoll, o.UnhealthyPoll = never, never })
	r.plugin.set(func(p *faultyPlugin) { p.encErr = status.Error(codes.PermissionDenied, "no") })
	_, err := r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.ErrorContains(t, err, "no")
	require.Equal(t, envelope.Denied, r.Health().Problem)
	require.Eventually(t, func() bool { n, _ := r.plugin.calls(); return n == 3 }, testWait, testTick, "and looked into")
	r.plugin.live()
	require.Eventually(t, func() bool { r.write("value"); return ready(r) }, testWait, testTick)
}

func TestAnswersThatCannotBeStoredAreRefused(t *testing.T) {
	for name, wrap := range map[string]func([]byte) []byte{
		"nothing":              func([]byte) []byte { return nil },
		"more than the length": func([]byte) []byte { return make([]byte, maxWrapped+1) },
		"the DEK in the clear": func(dek []byte) []byte { return append([]byte("id:"), dek...) },
	} {
		r := newRig(t)
		r.plugin.set(func(p *faultyPlugin) { p.wrap = wrap })
		_, err := r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
		require.ErrorIs(t, err, envelope.ErrUnavailable, name)
		require.Zero(t, r.Health().CachedDEKs, name)
	}
}

func TestNoRandomnessNoWrite(t *testing.T) {
	broken := errors.New("no entropy")
	none := newRig(t, func(o *Options) { o.Random = iotest.ErrReader(broken) })
	_, err := none.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.ErrorIs(t, err, broken, "it cannot even be probed")
	none.requireCalls(0, 0)

	r := newRig(t, func(o *Options) { // enough for one probe
		o.Random = io.MultiReader(bytes.NewReader(make([]byte, dekSize)), iotest.ErrReader(broken))
	})
	before, _ := r.plugin.calls()
	_, err = r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.ErrorIs(t, err, broken)
	after, _ := r.plugin.calls()
	require.Equal(t, before, after)
	require.Equal(t, 1, r.seen.failed)
}

func TestInputsAreNotChanged(t *testing.T) {
	r := newRig(t)
	plaintext := []byte("value")
	out, err := r.Seal(t.Context(), testPrefix, plaintext, testKey)
	require.NoError(t, err)
	require.Equal(t, "value", string(plaintext))
	old := oldRecord(t, r.plugin, "value")
	for _, payload := range [][]byte{out[len(testPrefix):], old} {
		before := bytes.Clone(payload)
		for _, at := range []value.Context{testKey, otherKey} {
			_, _, _ = r.Open(t.Context(), payload, at)
			require.Equal(t, before, payload)
		}
	}
}

func TestUsageIsSinceTheBeginning(t *testing.T) {
	r := newRig(t)
	a := r.write("a")
	for range 3 {
		require.True(t, verdictOf(r.Open(t.Context(), a, testKey)).opened)
	}
	_, _, err := r.Open(t.Context(), a, otherKey)
	require.Error(t, err)
	require.Zero(t, r.Health().Reads, "as of the last call of Usage")
	require.Equal(t, envelope.Use{Writes: 1, Reads: 3}, r.Usage())
	r.clock.SetTime(testStart.Add(time.Second))
	require.Equal(t, envelope.Use{Writes: 1, Reads: 3}, r.Usage())
	require.EqualValues(t, 3, r.Health().Reads)
	require.Equal(t, testStart, r.Health().LastRead, "when it was noticed")
	require.Equal(t, testStart, r.Health().LastWrite)
	r.write("b")
	r.Usage()
	require.Equal(t, testStart.Add(time.Second), r.Health().LastWrite)
	require.Equal(t, testStart, r.Health().LastRead, "nothing was")
}

func TestReadersAndWritersAtOnce(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CacheSize = 8 })
	old := oldRecord(t, r.plugin, "old")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				plaintext := fmt.Sprint(i, j)
				out, err := r.Seal(t.Context(), testPrefix, []byte(plaintext), testKey)
				assert.NoError(t, err)
				for _, payload := range [][]byte{out[len(testPrefix):], old} {
					got, stale, err := r.Open(t.Context(), payload, testKey)
					assert.NoError(t, err)
					assert.Equal(t, &payload[0] == &old[0], stale)
					assert.Equal(t, map[bool]string{true: "old", false: plaintext}[stale], string(got))
				}
				r.Usage()
				r.Health()
			}
		})
	}
	wg.Wait()
	r.write("that an AES-CBC value took the place of none")
	require.Equal(t, 8, r.Health().CachedDEKs)
}
