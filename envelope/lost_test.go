package envelope

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// A reader that sees a loss has seen it for when it writes.
func TestALossThatAReaderSeesIsKept(t *testing.T) {
	value, ciphertext := sealedBy(t, "1")
	r, _ := onlooker(t, newFaultyPlugin())
	r.read(value)
	r.ofOld(ciphertext, func(f *faultyPlugin) { f.decErr = status.Error(codes.NotFound, "no such KEK") })
	r.suspect()
	require.NotEmpty(t, r.Health().Problem)
	r.pass(DefaultUnhealthyPoll)
	require.Empty(t, r.Health().Problem, "of what is left nothing is known against it")
	require.NoError(t, r.Prepare(t.Context()))
	r.SetRole(Writes)
	_, stale := r.read(value)
	require.True(t, stale)
}

// A KEK that is lost is lost also if the plugin still remembers the DEK in use: that
// is not written with again, or what it writes would be stale for ever.
func TestWhatIsWrittenAfterALossIsNotStale(t *testing.T) {
	other, ciphertext := sealedBy(t, "1")
	r := newRig(t)
	r.read(other)
	r.ofOld(ciphertext, func(f *faultyPlugin) { f.decErr = status.Error(codes.NotFound, "no such KEK") })
	r.suspect()
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
	r.lose(r.Provider, r.era.now.Load())
	r.SetRole(Writes)
	r.settle()
	_, stale = r.read(r.write("again"))
	require.False(t, stale)
}
