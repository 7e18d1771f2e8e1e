package envelope

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// One value that a reader met must not keep its plugin from becoming the writer.
func TestAReaderThatMetADamagedValueCanBecomeTheWriter(t *testing.T) {
	damaged, ciphertext := sealedBy(t, "1")
	r, _ := onlooker(t, newFaultyPlugin())
	r.plugin.set(func(f *faultyPlugin) { f.decErr, f.refused = status.Error(codes.Internal, "odd"), []byte(ciphertext) })
	_, _, err := r.Open(t.Context(), damaged, testKey)
	require.Error(t, err)
	r.settle()
	require.Equal(t, Failed, r.Health().Problem, "it has unwrapped nothing")
	require.NoError(t, r.Prepare(t.Context()))
	require.NoError(t, r.Ailing())
	r.SetRole(Writes)
	r.write("v")
	r.settle()
	require.Empty(t, r.Health().Problem)
}

// A plugin that writes already has to wrap and unwrap for whatever else it is to
// write: that Status is well says nothing.
func TestPrepareOfAWriterHasItWrapAndUnwrap(t *testing.T) {
	for name, spoil := range map[string]func(*faultyPlugin){
		"no Encrypt":    func(f *faultyPlugin) { f.encErr = status.Error(codes.PermissionDenied, "no") },
		"no Decrypt":    func(f *faultyPlugin) { f.decErr = status.Error(codes.PermissionDenied, "no") },
		"another key":   func(f *faultyPlugin) { f.unwrapped = []byte(strings.Repeat("x", dekSize)) },
		"another KEK":   func(f *faultyPlugin) { f.encryptKeyID = "2" },
		"it loses KEKs": func(f *faultyPlugin) { f.decErr = status.Error(codes.NotFound, "gone") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.clock.Step(2 * time.Second)
			require.NoError(t, r.Prepare(t.Context()))
			r.plugin.set(spoil)
			r.clock.Step(2 * time.Second)
			require.NoError(t, r.Asked(t.Context()))
			err := r.Prepare(t.Context())
			if name == "no Encrypt" || name == "another KEK" {
				require.NoError(t, err, "a DEK is there that it unwraps")
				return
			}
			require.Error(t, err)
		})
		t.Run(name+", for the first time", func(t *testing.T) {
			r := newRig(t)
			r.plugin.set(spoil)
			r.clock.Step(2 * time.Second)
			require.Error(t, r.Prepare(t.Context()))
			if name == "another key" || name == "it loses KEKs" {
				r.writeFails("no longer") // what Prepare saw is evidence
				return
			}
			r.write("what is written goes on")
		})
	}
}

// A reader whose plugin refuses Status is tried by what it has read before.
func TestAReaderThatIsRefusedStatusIsWellAfterARestart(t *testing.T) {
	value := newRig(t).write("value")
	f := newFaultyPlugin()
	f.statusErr = errDenied
	r, _ := onlooker(t, f)
	r.read(value)
	r.pass(DefaultUnhealthyPoll)
	require.Empty(t, r.Health().Problem)
	f.die()
	r.pass(DefaultHealthyPoll)
	require.NotEmpty(t, r.Health().Problem)
	f.live()
	f.set(func(f *faultyPlugin) { f.statusErr = errDenied })
	r.pass(DefaultUnhealthyPoll)
	require.Empty(t, r.Health().Problem, "nobody has read anything")
}

// Decrypt that answers as if the plugin were away, though it is in reach.
func TestADecryptThatIsNeverServedCounts(t *testing.T) {
	value := newRig(t).write("value")
	for _, role := range []Role{Reads, Writes} {
		r := newRig(t)
		r.SetRole(role)
		r.plugin.set(func(f *faultyPlugin) { f.decErr = status.Error(codes.Unavailable, "the KMS is away") })
		_, _, err := r.Open(t.Context(), value, testKey)
		require.ErrorIs(t, err, ErrUnavailable)
		healthy := r.Health().LastHealthy
		for range 20 {
			r.pass(DefaultUnhealthyPoll)
			r.clock.Step(plugin.Grace)
			r.settle()
			require.Equal(t, Unreachable, r.Health().Problem)
		}
		if role == Writes {
			require.Equal(t, healthy, r.Health().LastHealthy)
			r.writeFails()
		}
	}
}

func TestAReadThatSucceedsLateDoesNotEndANewerDoubt(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	r.followed.Learn(func(k plugin.Known) plugin.Known {
		k = k.AfterTrial(plugin.Troublef(Denied, "x"), now, now)
		return k.AfterUnwrap(nil, now.Add(-time.Second), now)
	})
	require.Equal(t, Denied, r.Health().Problem)
}

// What a reader was tried with is no trial of what is then written with.
func TestAWriterIsTriedByItsOwnDEK(t *testing.T) {
	other, ciphertext := sealedBy(t, "1")
	r, _ := onlooker(t, newFaultyPlugin())
	r.read(other)
	require.NoError(t, r.Prepare(t.Context()))
	spare := string(r.writer.spare.source.EncryptedDEK)
	r.reconnect()
	require.NotEqual(t, spare, ciphertext)
	r.ofOld(spare, func(f *faultyPlugin) { f.decErr = status.Error(codes.NotFound, "no such KEK") })
	r.suspect()
	r.SetRole(Writes)
	r.settle()
	r.writeFails("no longer")
}

// A Decrypt that newly fails does not prolong the write window, also while it does
// not count yet.
func TestWhatIsNewProlongsNothing(t *testing.T) {
	r := newRig(t)
	until := r.Health().WritesUntil
	r.plugin.set(func(f *faultyPlugin) { f.decErr = errGone })
	r.reconnect()
	require.Equal(t, until, r.Health().WritesUntil)
}

// Another timeout makes the plugin another, which is tried by what was read before.
func TestAnHeirIsTriedByWhatWasReadBefore(t *testing.T) {
	damaged, ciphertext := sealedBy(t, "1")
	r, _ := onlooker(t, newFaultyPlugin())
	r.read(newRig(t).write("before"))
	f := newFaultyPlugin()
	f.decErr, f.refused = status.Error(codes.Internal, "odd"), []byte(ciphertext)
	heir := &rig{t: t, plugin: f, clock: r.clock, Lease: lease(NewProvider(f, Options{Clock: r.clock}), Idle)}
	defer heir.End()
	heir.Inherit(r.Provider)
	heir.SetRole(Reads)
	heir.settle()
	_, _, err := heir.Open(t.Context(), damaged, testKey)
	require.Error(t, err)
	heir.settle()
	require.Empty(t, heir.Health().Problem)
}

// A plugin that remembers what it wrapped last, and may unwrap nothing else.
func TestAWriterOfWhomOnlyTheOwnDEKIsUnwrappedIsNotWell(t *testing.T) {
	r := newRig(t)
	r.read(newRig(t).write("before"))
	own := r.ownDEK()
	r.plugin.set(func(f *faultyPlugin) { f.decErr, f.spared = errDenied, []byte(own) })
	_, _, err := r.Open(t.Context(), newRig(t).write("cold"), testKey)
	require.ErrorIs(t, err, errDenied)
	r.settle()
	require.Equal(t, Denied, r.Health().Problem)
}

// A reader is tried by what is under the key_id that is named, if there is any.
func TestAReaderIsTriedUnderThePresentKey(t *testing.T) {
	old, _ := sealedBy(t, "0")
	now, ciphertext := sealedBy(t, "1")
	r, _ := onlooker(t, newFaultyPlugin())
	r.read(old)
	r.plugin.set(func(f *faultyPlugin) { f.decErr, f.refused = errDenied, []byte(ciphertext) })
	_, _, err := r.Open(t.Context(), now, testKey)
	require.ErrorIs(t, err, errDenied)
	r.settle()
	require.Equal(t, Denied, r.Health().Problem)
}

// It stays ill, and prolongs nothing, however often a read fails, and whatever
// with.
func TestAWriterOfWhomOnlyTheOwnDEKIsUnwrappedStaysIll(t *testing.T) {
	before := newRig(t).write("before")
	cold := make([][]byte, 50)
	for i := range cold {
		cold[i] = newRig(t).write("cold")
	}
	for _, err := range []error{errDenied, errGone, status.Error(codes.Internal, "odd")} {
		seen := &observed{}
		r := newRig(t, func(o *Options) { o.Observer = seen })
		r.read(before)
		own := r.ownDEK()
		r.plugin.set(func(f *faultyPlugin) { f.decErr, f.spared = err, []byte(own) })
		until := r.Health().WritesUntil
		_, encrypts, _ := r.plugin.calls()
		for _, value := range cold {
			_, _, got := r.Open(t.Context(), value, testKey)
			require.ErrorIs(t, got, err)
			r.pass(5 * time.Second)
			r.clock.Step(plugin.Grace)
			r.settle()
			require.Equal(t, problemOf(err), r.Health().Problem)
		}
		require.False(t, r.Health().WritesUntil.After(until))
		require.Equal(t, []Problem{problemOf(err)}, slices.Compact(seen.changes), "in other words perhaps")
		statuses, after, decrypts := r.plugin.calls()
		require.LessOrEqual(t, after-encrypts, 3, "once a minute, when the window is over")
		r.pass(DefaultUnhealthyPoll)
		polls, _, trials := r.plugin.calls()
		require.LessOrEqual(t, trials-decrypts, 3*(polls-statuses), "its own DEK, one that was read, and a fresh one, once a poll")
		r.plugin.live()
		r.pass(DefaultUnhealthyPoll)
		require.Empty(t, r.Health().Problem)
	}
}

// One that wrote is tried by what it wrote with, where nothing else is known.
func TestAFormerWriterIsWellAgain(t *testing.T) {
	r := newRig(t)
	r.plugin.set(func(f *faultyPlugin) { f.decErr = errDenied })
	r.reconnect()
	require.Equal(t, Denied, r.Health().Problem)
	r.SetRole(Reads)
	r.pass(DefaultUnhealthyPoll)
	require.Equal(t, Denied, r.Health().Problem)
	r.plugin.live()
	r.pass(DefaultUnhealthyPoll)
	require.Empty(t, r.Health().Problem)
}

// Whoever asks for a writer to be asked is heard, however its role came and went.
func TestAWriterThatWasOneBeforeIsAskedAtOnce(t *testing.T) {
	r := newRig(t)
	r.clock.Step(2 * time.Second)
	r.SetRole(Reads)
	r.SetRole(Writes)
	require.NoError(t, r.Prepare(t.Context()))
}
