package envelope

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/plugin"
)

func (r *rig) writeFails(fragments ...string) {
	r.t.Helper()
	_, err := r.Seal(r.t.Context(), testPrefix, []byte("x"), testKey)
	require.ErrorIs(r.t, err, ErrWritesStopped)
	for _, f := range fragments {
		require.ErrorContains(r.t, err, f)
	}
}

func TestOneDEKForAsLongAsTheKeyIDStays(t *testing.T) {
	r := newRig(t)
	first := r.write("a")
	for range 10 {
		r.pass(DefaultHealthyPoll)
		r.write("b")
	}
	_, encrypts, _ := r.plugin.calls()
	require.Equal(t, 1, encrypts)

	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "2" })
	r.pass(DefaultHealthyPoll)
	second := r.write("c")
	_, encrypts, _ = r.plugin.calls()
	require.Equal(t, 2, encrypts)
	require.NotEqual(t, r.plugin.wrapped[0], r.plugin.wrapped[1], "another key_id, another DEK")

	_, stale := r.read(first)
	require.True(t, stale)
	_, stale = r.read(second)
	require.False(t, stale)
}

func TestPollRates(t *testing.T) {
	r := newRig(t)
	statuses := func() int { n, _, _ := r.plugin.calls(); return n }
	require.Equal(t, 1, statuses())

	r.pass(59 * time.Second)
	require.Equal(t, 1, statuses(), "not before 60 s while healthy")
	r.plugin.set(func(f *faultyPlugin) { f.status.Healthz = "no" })
	r.pass(time.Second)
	require.Equal(t, 2, statuses())

	r.pass(9 * time.Second)
	require.Equal(t, 2, statuses(), "not before 10 s while unhealthy")
	r.pass(time.Second)
	require.Equal(t, 3, statuses())
}

func TestABreakInTheConnectionIsLookedAtAtOnceAndCountsAfterTheGrace(t *testing.T) {
	r := newRig(t)
	r.plugin.die()
	r.plugin.wake <- struct{}{}
	r.settle()
	require.Equal(t, Unreachable, r.followed.Load().Status.Problem)
	require.Empty(t, r.Health().Problem, "it may be a restart")
	require.Equal(t, testStart.Add(DefaultWriteWindow), r.Health().WritesUntil)
	r.clock.Step(plugin.Grace - 1)
	require.Empty(t, r.Health().Problem)
	r.clock.Step(1)
	require.Equal(t, Unreachable, r.Health().Problem)
	require.Equal(t, testStart, r.Health().Since)
	require.Equal(t, testStart.Add(DefaultWriteWindow), r.Health().WritesUntil, "the grace prolongs nothing")
	r.settle()
	r.plugin.live()
	r.plugin.wake <- struct{}{}
	r.settle()
	require.Empty(t, r.Health().Problem)
}

// Timers that are set anew while a clock is turned end late.
func TestAPollThatTellsNothingNewSetsNoTimers(t *testing.T) {
	r := newRig(t)
	r.plugin.die()
	r.pass(DefaultHealthyPoll)
	turn := r.writer.now.Load().turn
	for range 3 {
		r.pass(DefaultUnhealthyPoll)
	}
	require.Equal(t, turn, r.writer.now.Load().turn)
}

// Writes end three minutes after the last healthy Status, to the nanosecond,
// whatever it is that makes the plugin unhealthy; reads never do.
func TestTheWriteWindow(t *testing.T) {
	faults := map[Problem]func(*faultyPlugin){
		Unreachable:  func(f *faultyPlugin) { f.statusErr = errGone },
		TimedOut:     func(f *faultyPlugin) { f.statusErr = status.Error(codes.DeadlineExceeded, "slow") },
		Denied:       func(f *faultyPlugin) { f.statusErr = status.Error(codes.PermissionDenied, "no") },
		Throttled:    func(f *faultyPlugin) { f.statusErr = status.Error(codes.ResourceExhausted, "wait") },
		KeyDisabled:  func(f *faultyPlugin) { f.statusErr = status.Error(codes.FailedPrecondition, "disabled") },
		Failed:       func(f *faultyPlugin) { f.statusErr = errors.New("odd") },
		Unhealthy:    func(f *faultyPlugin) { f.status.Healthz = "KMS is away" },
		BadVersion:   func(f *faultyPlugin) { f.status.Version = "v3" },
		BadKeyID:     func(f *faultyPlugin) { f.status.KeyID = "" },
		Disagreement: func(f *faultyPlugin) { f.status.KeyID, f.encryptKeyID = "2", "3" },
		BadAnswer:    func(f *faultyPlugin) { f.status.KeyID, f.annotations = "2", map[string][]byte{"not-a-domain": nil} },
	}
	for problem, fault := range faults {
		t.Run(string(problem), func(t *testing.T) {
			r := newRig(t)
			before := r.write("before")
			r.pass(DefaultHealthyPoll)
			healthy := r.clock.Now()
			r.plugin.set(fault)

			r.pass(60 * time.Second)
			h := r.Health()
			require.Equal(t, problem, h.Problem)
			require.Equal(t, healthy.Add(60*time.Second), h.Since)
			require.Equal(t, healthy, h.LastHealthy)
			require.Equal(t, healthy.Add(DefaultWriteWindow), h.WritesUntil)
			require.NotEmpty(t, h.Problem)

			for h.WritesUntil.Sub(r.clock.Now()) > 10*time.Second {
				r.write("in the window")
				r.pass(10 * time.Second)
			}
			r.clock.Step(h.WritesUntil.Sub(r.clock.Now()) - 1)
			r.write("at its last moment")
			r.clock.Step(1)
			r.settle()
			r.writeFails("last healthy at", h.LastHealthy.Format(timeFormat))
			r.read(before)

			r.plugin.set(func(f *faultyPlugin) {
				f.status, f.statusErr = Status{Version: "v2", Healthz: "ok", KeyID: "1"}, nil
				f.encryptKeyID, f.annotations = "", nil
			})
			r.pass(DefaultUnhealthyPoll)
			r.write("after")
			require.Equal(t, r.clock.Now(), r.Health().Since)
		})
	}
}

// latePlugin's answers are under way for some time.
type latePlugin struct {
	*faultyPlugin
	clock *testingclock.FakeClock
}

func (p latePlugin) Status(ctx context.Context) (Status, error) {
	s, err := p.faultyPlugin.Status(ctx)
	p.clock.Step(2 * time.Second)
	return s, err
}

// What Status says was true when it was asked, and may no longer be so when
// the answer comes.
func TestTheWriteWindowBeginsWhenStatusIsAsked(t *testing.T) {
	clock := testingclock.NewFakeClock(testStart)
	l := lease(NewProvider(latePlugin{newFaultyPlugin(), clock}, Options{Clock: clock}), Writes)
	defer l.End()
	require.NoError(t, l.Asked(t.Context()))
	require.Equal(t, testStart, l.Health().LastHealthy)
	require.Equal(t, testStart.Add(2*time.Second), l.Health().Since)
}

func TestThePinnedVersionMustNotChange(t *testing.T) {
	r := newRig(t)
	r.plugin.set(func(f *faultyPlugin) { f.status.Version = "v2beta1" })
	r.pass(DefaultHealthyPoll)
	require.Equal(t, BadVersion, r.Health().Problem)
}

// A plugin whose Encrypt and Status do not agree is asked again and again, with
// one DEK, until they do.
func TestADisagreementCostsOneDEK(t *testing.T) {
	r := newRig(t)
	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID, f.encryptKeyID = "2", "3" })
	r.pass(DefaultHealthyPoll)
	for range 5 {
		r.pass(DefaultUnhealthyPoll)
	}
	require.Equal(t, Disagreement, r.Health().Problem)
	require.Contains(t, r.Health().Err.Error(), HashKeyID("2"))

	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "3" })
	r.pass(DefaultUnhealthyPoll)
	require.Empty(t, r.Health().Problem)
	require.Equal(t, HashKeyID("3"), r.Health().KeyIDHash)
	for _, dek := range r.plugin.wrapped[2:] {
		require.Equal(t, r.plugin.wrapped[1], dek)
	}
	got, _ := r.read(r.write("x"))
	require.Equal(t, "x", got)
}

func TestAPluginThatWrapsNothingIsRefused(t *testing.T) {
	p := &clearPlugin{newFaultyPlugin()}
	l := lease(NewProvider(p, Options{}), Writes)
	defer l.End()
	require.NoError(t, l.Asked(t.Context()))
	require.Equal(t, BadAnswer, l.Health().Problem)
}

type clearPlugin struct{ *faultyPlugin }

func (p *clearPlugin) Encrypt(_ context.Context, dek []byte) (Wrapped, error) {
	return Wrapped{Ciphertext: append([]byte("wrapped:"), dek...), KeyID: "1"}, nil
}

func TestWritesBeginWhenThePluginComes(t *testing.T) {
	plugin := newFaultyPlugin()
	plugin.die()
	r := newRigOn(t, plugin)
	h := r.Health()
	require.True(t, h.WritesUntil.IsZero())
	require.NotEmpty(t, h.Problem)
	r.writeFails("no DEK that the plugin is known to unwrap", "nobody listens")

	plugin.live()
	r.pass(DefaultUnhealthyPoll)
	r.write("x")
}

func TestUsageByKeyID(t *testing.T) {
	r := newRig(t)
	first := r.write("a")
	for range 3 {
		r.read(first)
	}
	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "2" })
	r.pass(DefaultHealthyPoll)
	r.write("b")
	require.Equal(t, map[string]Use{"1": {Writes: 1, Reads: 3}, "2": {Writes: 1}}, r.Usage())
	r.read(first)
	require.Equal(t, map[string]Use{"1": {Writes: 1, Reads: 4}, "2": {Writes: 1}}, r.Usage())
	require.Equal(t, uint64(4), r.Health().Reads)
	require.Equal(t, r.clock.Now(), r.Health().LastRead)
	require.Equal(t, r.clock.Now(), r.Health().LastWrite)

	r.DropAged()
	noticed := r.clock.Now()
	r.clock.Step(time.Second)
	r.DropAged()
	require.Equal(t, []time.Time{noticed, noticed}, []time.Time{r.Health().LastRead, r.Health().LastWrite})
	r.write("c")
	require.Equal(t, []time.Time{noticed, r.clock.Now()}, []time.Time{r.Health().LastRead, r.Health().LastWrite})
}

// What a test cannot see in the output of fmt must not be there in any verb.
func TestNothingThatHoldsAKeyPrintsIt(t *testing.T) {
	for _, mode := range WriteModes() {
		r := newRig(t, func(o *Options) { o.Mode = mode })
		r.read(r.write("x"))
		dek := r.plugin.wrapped[0]
		for _, v := range []any{r.writer.now.Load().dek, r.writer.now.Load().dek.sealer, r.writer.now.Load().dek.opener, r.writer.now.Load().dek.opener.opener, &pendingDEK{secret: [dekSize]byte(dek)}, pendingDEK{secret: [dekSize]byte(dek)}} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
				out := fmt.Sprintf(verb, v)
				for _, form := range []string{"%s", "%x", "%d", "%v"} {
					needle := strings.Trim(fmt.Sprintf(form, dek[:8]), "[]")
					require.NotContains(t, out, needle, "%s of %T", verb, v)
				}
			}
		}
	}
}

// whenMade is told when a DEK is first written with.
type whenMade struct {
	silent
	do func()
}

func (o *whenMade) DEKMade(string, time.Duration, error) { o.do() }

// A plugin is called well when there is something to write with, and not a moment
// before.
func TestAPluginIsCalledWellWhenItCanBeWrittenWith(t *testing.T) {
	seen := &whenMade{do: func() {}}
	r := newRig(t, func(o *Options) { o.Observer = seen })
	r.plugin.die()
	r.pass(DefaultWriteWindow + time.Second)
	r.plugin.live()
	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "2" })
	told := 0
	seen.do = func() {
		told++
		require.NotEmpty(t, r.Health().Problem)
	}
	r.pass(DefaultUnhealthyPoll)
	require.Equal(t, 1, told)
	require.Empty(t, r.Health().Problem)
	r.write("v")
}
