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
