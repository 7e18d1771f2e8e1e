package envelope

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// A plugin may lose its KEK and make another under the same key_id, as when it is
// restarted on an empty disk. Then it says one of these.
var lostKEK = map[string]func(*faultyPlugin){
	"no such KEK":    func(f *faultyPlugin) { f.decErr = status.Error(codes.NotFound, "no such KEK") },
	"not mine":       func(f *faultyPlugin) { f.decErr = status.Error(codes.InvalidArgument, "not mine") },
	"another secret": func(f *faultyPlugin) { f.unwrapped = []byte(strings.Repeat("x", dekSize)) },
	"no secret":      func(f *faultyPlugin) { f.unwrapped = []byte("x") },
}

// ofOld confines what is set to what was wrapped before.
func (r *rig) ofOld(ciphertext string, spoil func(*faultyPlugin)) {
	r.plugin.set(func(f *faultyPlugin) { f.refused = []byte(ciphertext) })
	r.plugin.set(spoil)
}

func (r *rig) reconnect() {
	r.clock.Step(time.Second)
	r.plugin.wake <- struct{}{}
	r.settle()
}

func (r *rig) ownDEK() string { return string(r.writer.now.Load().dek.source.EncryptedDEK) }

// It is tried after its connection was made anew, and every tenth poll.
func TestADEKThatThePluginHasLostIsNotWrittenWith(t *testing.T) {
	for name, spoil := range lostKEK {
		for when, noticed := range map[string]func(*rig){
			"reconnect": func(r *rig) { r.reconnect() },
			"ten polls": func(r *rig) {
				for range 10 {
					r.pass(DefaultHealthyPoll)
				}
			},
		} {
			t.Run(name+", "+when, func(t *testing.T) {
				seen := &observed{}
				r := newRig(t, func(o *Options) { o.Observer = seen })
				before := r.write("before")
				r.ofOld(r.ownDEK(), spoil)
				noticed(r)
				require.NotEmpty(t, r.Health().Problem)
				require.ErrorContains(t, r.Health().Err, "no longer")
				r.writeFails("no longer")
				require.Len(t, seen.changes, 1, "it is told")
				got, stale := r.read(before)
				require.Equal(t, "before", got)
				require.True(t, stale, "it can be read nowhere else")

				r.pass(DefaultUnhealthyPoll)
				require.Empty(t, r.Health().Problem, "it unwraps a fresh one")
				after := r.write("after")
				_, stale = r.read(after)
				require.False(t, stale)
				_, stale = r.read(before)
				require.True(t, stale)
				_, encrypts, _ := r.plugin.calls()
				require.Equal(t, 2, encrypts)
			})
		}
	}
}

// What is refused for another reason may come back: the window goes on, and when
// it is over nothing is lost by another DEK.
func TestADEKThatIsRefusedIsReplacedWhenTheWindowIsOver(t *testing.T) {
	r := newRig(t)
	r.ofOld(r.ownDEK(), func(f *faultyPlugin) { f.decErr = status.Error(codes.Internal, "odd") })
	r.reconnect()
	require.Equal(t, Failed, r.Health().Problem)
	r.write("in the window")
	_, encrypts, _ := r.plugin.calls()
	require.Equal(t, 1, encrypts)
	for range 20 {
		r.pass(DefaultUnhealthyPoll)
	}
	_, encrypts, _ = r.plugin.calls()
	require.Equal(t, 2, encrypts)
	require.Empty(t, r.Health().Problem)
	r.write("under another")
}

// The plugin goes away between wrapping the first DEK and unwrapping it, and has
// another KEK when it is back.
func TestAWrappedDEKThatIsRefusedIsWrappedAgain(t *testing.T) {
	f := newFaultyPlugin()
	f.decErr = status.Error(codes.Internal, "odd")
	r := newRigOn(t, f)
	require.Equal(t, Failed, r.Health().Problem)
	first := string(r.maker.pending.source.EncryptedDEK)
	r.plugin.set(func(f *faultyPlugin) { f.refused = []byte(first); f.salt = "\n" })
	for range 7 {
		r.pass(DefaultUnhealthyPoll)
	}
	require.Empty(t, r.Health().Problem)
	r.write("v")
	_, encrypts, _ := r.plugin.calls()
	require.Equal(t, 2, encrypts, "once a minute")
}

// The same of what was made ahead.
func TestASpareDEKThatIsRefusedIsMadeAgain(t *testing.T) {
	for name, spoil := range lostKEK {
		t.Run(name, func(t *testing.T) {
			r, _ := onlooker(t, newFaultyPlugin())
			require.NoError(t, r.Prepare(t.Context()))
			spare := string(r.writer.spare.source.EncryptedDEK)
			r.ofOld(spare, spoil)
			r.clock.Step(DefaultHealthyPoll)
			require.Error(t, r.Prepare(t.Context()))
			r.clock.Step(DefaultHealthyPoll)
			require.NoError(t, r.Prepare(t.Context()))
			r.SetRole(Writes)
			r.write("v")
		})
	}
}

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

// A KEK that is lost is lost to all that it wrapped, whoever wrote it and however
// it is found out; and what was wrapped by it stays to be written again.
func TestAllThatALostKEKWrappedIsStale(t *testing.T) {
	for name, find := range map[string]func(*rig){
		"by a trial": func(r *rig) { r.reconnect() },
		"by making ready": func(r *rig) {
			r.clock.Step(2 * time.Second)
			require.Error(r.t, r.Prepare(r.t.Context()))
		},
		"by making ready, when it no longer wrote": func(r *rig) {
			r.SetRole(Reads)
			r.clock.Step(2 * time.Second)
			require.Error(r.t, r.Prepare(r.t.Context()))
			r.SetRole(Writes)
		},
		"in other words, until the window was over": func(r *rig) {
			r.plugin.set(func(f *faultyPlugin) { f.decErr = status.Error(codes.Unknown, "no such key") })
			r.reconnect()
			for range 20 {
				r.pass(DefaultUnhealthyPoll)
			}
		},
		"as if it were away, until the window was over": func(r *rig) {
			r.plugin.set(func(f *faultyPlugin) { f.decErr = status.Error(codes.Unavailable, "no such key") })
			r.reconnect()
			for range 20 {
				r.pass(DefaultUnhealthyPoll)
			}
		},
		"by a value that is not its own": func(r *rig) {
			cold, _ := sealedBy(r.t, "1")
			r.plugin.set(func(f *faultyPlugin) { f.refused = nil })
			_, _, err := r.Open(r.t.Context(), cold, testKey)
			require.Error(r.t, err)
			r.settle()
		},
		"by a value that does not open": func(r *rig) {
			cold, _ := sealedBy(r.t, "1")
			r.plugin.set(func(f *faultyPlugin) {
				f.decErr, f.refused, f.unwrapped = nil, nil, []byte(strings.Repeat("x", dekSize))
			})
			_, _, err := r.Open(r.t.Context(), cold, testKey)
			require.ErrorIs(r.t, err, ErrCorrupt)
			r.settle()
		},
		"while Status is unwell": func(r *rig) {
			r.plugin.set(func(f *faultyPlugin) { f.status.Healthz = "sealed" })
			r.reconnect()
			r.writeFails()
			r.plugin.set(func(f *faultyPlugin) { f.status.Healthz = "ok" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			other, _ := sealedBy(t, "1")
			r := newRig(t)
			own := r.write("own")
			r.read(other)
			r.ofOld(r.ownDEK(), func(f *faultyPlugin) { f.decErr = status.Error(codes.NotFound, "no such KEK") })
			find(r)
			r.plugin.set(func(f *faultyPlugin) { f.decErr, f.unwrapped = nil, nil })
			for range 10 {
				r.pass(DefaultUnhealthyPoll)
			}
			require.Empty(t, r.Health().Problem)
			fresh := r.write("fresh")
			for range 2 {
				for _, value := range [][]byte{own, other} {
					_, stale := r.read(value)
					require.True(t, stale)
				}
				r.plugin.set(func(f *faultyPlugin) { f.statusErr = errGone }) // and also when the key_id is not known
				r.pass(DefaultWriteWindow + time.Second)
			}
			r.plugin.live()
			r.pass(DefaultUnhealthyPoll)
			_, stale := r.read(fresh)
			require.False(t, stale)
		})
	}
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
	r.followed.Suspect("1", plugin.Troublef(Failed, "x"))
	r.settle()
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

// The era is that of what is in memory, whoever finds a KEK to be lost and whoever
// has the DEKs in memory from whom.
func TestALossIsKnownToAllOfOnePlugin(t *testing.T) {
	other, _ := sealedBy(t, "1")
	r := newRig(t)
	own := r.write("own")
	r.read(other)
	heir := &rig{t: t, plugin: newFaultyPlugin(), clock: r.clock}
	heir.Lease = lease(NewProvider(heir.plugin, Options{Clock: r.clock}), Idle)
	defer heir.End()
	heir.Inherit(r.Provider)
	r.ofOld(r.ownDEK(), func(f *faultyPlugin) { f.decErr = status.Error(codes.NotFound, "no such KEK") })
	r.reconnect()
	require.NoError(t, heir.Prepare(t.Context()))
	heir.SetRole(Writes)
	heir.settle()
	for _, value := range [][]byte{own, other} {
		_, stale := heir.read(value)
		require.True(t, stale)
	}
	fresh := heir.write("fresh")
	_, stale := heir.read(fresh)
	require.False(t, stale)

	heir.ofOld(heir.ownDEK(), func(f *faultyPlugin) { f.decErr = status.Error(codes.NotFound, "no such KEK") })
	heir.reconnect()
	r.plugin.live()
	r.pass(DefaultUnhealthyPoll)
	_, stale = r.read(r.write("under a DEK of this era"))
	require.False(t, stale)
	_, stale = r.read(fresh)
	require.True(t, stale)
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
		for _, value := range cold {
			_, _, got := r.Open(t.Context(), value, testKey)
			require.ErrorIs(t, got, err)
			r.pass(5 * time.Second)
			r.clock.Step(plugin.Grace)
			r.settle()
			require.Equal(t, problemOf(err), r.Health().Problem)
		}
		require.False(t, r.Health().WritesUntil.After(until))
		require.Equal(t, []Problem{problemOf(err)}, seen.changes)
		r.plugin.live()
		r.pass(DefaultUnhealthyPoll)
		require.Empty(t, r.Health().Problem)
	}
}

// An outage of the KMS behind a plugin that is in reach loses no KEK.
func TestAnOutageOfTheKMSLosesNothing(t *testing.T) {
	other, _ := sealedBy(t, "1")
	cold, _ := sealedBy(t, "1")
	r := newRig(t)
	own := r.write("own")
	r.read(other)
	r.plugin.set(func(f *faultyPlugin) { f.encErr, f.decErr = errGone, errGone })
	_, _, err := r.Open(t.Context(), cold, testKey)
	require.Error(t, err)
	for range 40 {
		r.pass(DefaultUnhealthyPoll)
	}
	r.writeFails()
	r.plugin.live()
	r.pass(DefaultUnhealthyPoll)
	require.Empty(t, r.Health().Problem)
	for _, value := range [][]byte{own, other, r.write("again")} {
		_, stale := r.read(value)
		require.False(t, stale)
	}
	_, encrypts, _ := r.plugin.calls()
	require.LessOrEqual(t, encrypts, 1+40, "once a poll at most")
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

// A reader that sees a loss has seen it for when it writes.
func TestALossThatAReaderSeesIsKept(t *testing.T) {
	value, ciphertext := sealedBy(t, "1")
	r, _ := onlooker(t, newFaultyPlugin())
	r.read(value)
	r.ofOld(ciphertext, func(f *faultyPlugin) { f.decErr = status.Error(codes.NotFound, "no such KEK") })
	r.followed.Suspect("1", plugin.Troublef(Failed, "x"))
	r.settle()
	require.NotEmpty(t, r.Health().Problem)
	r.pass(DefaultUnhealthyPoll)
	require.Empty(t, r.Health().Problem, "of what is left nothing is known against it")
	require.NoError(t, r.Prepare(t.Context()))
	r.SetRole(Writes)
	_, stale := r.read(value)
	require.True(t, stale)
}

// Whoever asks for a writer to be asked is heard, however its role came and went.
func TestAWriterThatWasOneBeforeIsAskedAtOnce(t *testing.T) {
	r := newRig(t)
	r.clock.Step(2 * time.Second)
	r.SetRole(Reads)
	r.SetRole(Writes)
	require.NoError(t, r.Prepare(t.Context()))
}

// A KEK that is lost is lost also if the plugin still remembers the DEK in use: that
// is not written with again, or what it writes would be stale for ever.
func TestWhatIsWrittenAfterALossIsNotStale(t *testing.T) {
	other, ciphertext := sealedBy(t, "1")
	r := newRig(t)
	r.read(other)
	r.ofOld(ciphertext, func(f *faultyPlugin) { f.decErr = status.Error(codes.NotFound, "no such KEK") })
	r.followed.Suspect("1", plugin.Troublef(Failed, "x"))
	r.settle()
	require.NotEmpty(t, r.Health().Problem)
	r.writeFails()
	for range 3 {
		r.pass(DefaultUnhealthyPoll)
		require.Empty(t, r.Health().Problem)
		_, stale := r.read(r.write("after"))
		require.False(t, stale)
	}
	_, stale := r.read(other)
	require.True(t, stale)

	r.SetRole(Reads) // nor what was set aside before a loss that is found meanwhile
	r.writer.lose()
	r.SetRole(Writes)
	r.settle()
	_, stale = r.read(r.write("again"))
	require.False(t, stale)
}
