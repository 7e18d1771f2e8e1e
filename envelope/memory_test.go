package envelope

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errNoSuchKEK = status.Error(codes.NotFound, "no such KEK")

func (r *rig) loseKEK() {
	r.ofOld(r.ownDEK(), func(f *faultyPlugin) { f.decErr = errNoSuchKEK })
}

// heir is a second provider of a rig's plugin, as for another timeout.
func (r *rig) heir(change ...func(*Options)) *rig {
	h := r.idleHeir(change...)
	h.SetRole(Writes)
	h.settle()
	return h
}

func (r *rig) idleHeir(change ...func(*Options)) *rig {
	h := &rig{t: r.t, plugin: newFaultyPlugin(), clock: r.clock}
	opts := Options{Clock: r.clock}
	for _, c := range change {
		c(&opts)
	}
	h.Lease = lease(NewProvider(h.plugin, opts), Idle)
	r.t.Cleanup(h.End)
	h.Inherit(r.Provider)
	return h
}

// The DEK that is written with is found without the cache, and may have left that
// long ago. When it is no longer written with, memory is the only place for it.
func TestWhatALostKEKWroteStaysReadable(t *testing.T) {
	for name, pushOut := range map[string]func(*rig){
		"by DEKs that were met since": func(r *rig) {
			for range r.opts.MaxDEKs + 4 {
				other, _ := sealedBy(r.t, "1")
				r.read(other)
			}
		},
		"by its age": func(r *rig) {
			r.pass(r.opts.MaxDEKAge + time.Second)
			r.DropAged()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.MaxDEKs, o.MaxDEKAge = 16, 10*time.Minute })
			own := r.write("own")
			pushOut(r)
			other, _ := sealedBy(t, "1")
			r.read(other)
			r.loseKEK()
			r.reconnect()
			r.writeFails("no longer")
			for range 3 {
				for _, value := range [][]byte{own, other} {
					_, stale := r.read(value)
					require.True(t, stale)
				}
				r.pass(time.Hour)
				r.DropAged()
			}
			_, _, decrypts := r.plugin.calls()
			r.read(own)
			_, _, after := r.plugin.calls()
			require.Equal(t, decrypts, after)
		})
	}
}

// Of those whose KEK is there only the young stay.
func TestAfterALossDEKsAgeLikeBefore(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKAge = 10 * time.Minute })
	r.loseKEK()
	r.reconnect()
	r.pass(DefaultUnhealthyPoll)
	r.plugin.live()
	young, _ := sealedBy(t, "1")
	r.read(young)
	before := r.cache.len()
	r.clock.Step(time.Hour)
	r.DropAged()
	require.Equal(t, before-2, r.cache.len(), "that, and the present one, which is found without")
}

// What one provider of a plugin finds out, all of them know: none writes with what
// is known to be lost.
func TestALossEndsAllWritingWithWhatIsLost(t *testing.T) {
	for name, status_ := range map[string]error{"": nil, ", and hears nothing of Status": errGone} {
		t.Run("the other's plugin answers"+name, func(t *testing.T) {
			seen := &observed{}
			r := newRig(t)
			heir := r.heir(func(o *Options) { o.Observer = seen })
			own, lost := heir.write("own"), heir.ownDEK()
			r.loseKEK()
			heir.plugin.set(func(f *faultyPlugin) { f.statusErr = status_; f.decErr, f.refused = errNoSuchKEK, []byte(lost) })
			r.reconnect()
			heir.pass(time.Second)
			if status_ == nil {
				heir.write("no poll is due yet")
			}
			for range 30 {
				if out, err := heir.Seal(t.Context(), testPrefix, []byte("v"), testKey); err == nil {
					require.NotEqual(t, lost, heir.ownDEK())
					_, stale := heir.read(out[len(testPrefix):])
					require.False(t, stale)
				}
				heir.pass(5 * time.Second)
			}
			_, stale := heir.read(own)
			require.True(t, stale)
			_, err := heir.Seal(t.Context(), testPrefix, []byte("v"), testKey)
			require.Equal(t, status_ == nil, err == nil)
			if status_ == nil {
				require.Equal(t, []string{"start", notUnwrapped}, seen.made)
			}
		})
	}
}

// A DEK that is made while another provider finds a loss is not written with: it may
// be of the KEK that is lost.
func TestADEKThatWasMadeDuringALossIsNotWrittenWith(t *testing.T) {
	r := newRig(t)
	heir := r.heir()
	d := heir.draft()
	dek, trouble := heir.make(t.Context(), d, "key_id")
	require.Nil(t, trouble)
	defer heir.hold()()
	r.lose(r.Provider, 0)
	heir.writeWith(dek, r.clock.Now())
	require.NotEmpty(t, heir.Health().Problem)
	require.Nil(t, heir.writer.current())
}

// A provider that is closed is not kept by those with which it shared the memory.
func TestAProviderThatIsClosedLeavesTheMemory(t *testing.T) {
	r := newRig(t)
	heir := r.heir()
	require.Len(t, r.sharers, 2)
	heir.End()
	require.Len(t, r.sharers, 1)
	r.loseKEK()
	r.reconnect()
	r.writeFails("no longer")
}

// failing is a plugin whose Decrypt fails now and then.
type failing struct {
	*faultyPlugin
	fails   func() error
	refuses func(Wrapped) error // what is wrapped alone, when set
}

func (f *failing) Decrypt(ctx context.Context, w Wrapped) ([]byte, error) {
	if err := f.fails(); err != nil {
		return nil, err
	}
	if f.refuses != nil {
		if err := f.refuses(w); err != nil {
			return nil, err
		}
	}
	return f.faultyPlugin.Decrypt(ctx, w)
}

func newFailing(t *testing.T) (*rig, *failing) {
	r := newRig(t)
	r.End()
	f := &failing{faultyPlugin: r.plugin, fails: func() error { return nil }}
	r.Lease = lease(NewProvider(f, Options{Clock: r.clock}), Writes)
	t.Cleanup(r.End)
	require.NoError(t, r.Asked(t.Context()))
	return r, f
}

// The KMS is back between two calls of one question, or gives way to one call in
// ten, after the write window is over.
func TestAPluginThatIsBusyOrComesBackHasLostNothing(t *testing.T) {
	busy := status.Error(codes.ResourceExhausted, "slow down")
	for name, c := range map[string]struct {
		outage error
		after  func(call int) error
	}{
		"back at the second call": {errGone, func(call int) error {
			if call == 0 {
				return errGone
			}
			return nil
		}},
		"nine of ten are too many": {busy, func(call int) error {
			if call%10 != call/10%10 {
				return busy
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			other, _ := sealedBy(t, "1")
			r, f := newFailing(t)
			own := r.write("own")
			r.read(other)
			f.fails = func() error { return c.outage }
			r.reconnect()
			for range 20 {
				r.pass(DefaultUnhealthyPoll)
			}
			r.writeFails()
			calls := -1
			f.fails = func() error { calls++; return c.after(calls) }
			for range 60 {
				r.pass(DefaultHealthyPoll)
			}
			for _, value := range [][]byte{own, other} {
				_, stale := r.read(value)
				require.False(t, stale)
			}
		})
	}
}

// What a reader made ready, or had written with, is tried by the trials of a reader
// where nothing else is known. Refused, it is not written with.
func TestWhatAReaderSawRefusedIsNotWrittenWith(t *testing.T) {
	for name, ready := range map[string]func(*testing.T) (*rig, [][]byte){
		"made ready": func(t *testing.T) (*rig, [][]byte) {
			r, _ := onlooker(t, newFaultyPlugin())
			require.NoError(t, r.Prepare(t.Context()))
			return r, nil
		},
		"written with before": func(t *testing.T) (*rig, [][]byte) {
			r := newRig(t)
			own := r.write("own")
			r.SetRole(Reads)
			r.settle()
			return r, [][]byte{own}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, written := ready(t)
			refused := string(r.writer.spare.source.EncryptedDEK)
			r.clock.Step(2 * time.Second)
			cold, _ := sealedBy(t, "1")
			r.plugin.set(func(f *faultyPlugin) { f.decErr = errNoSuchKEK })
			_, _, err := r.Open(t.Context(), cold, testKey)
			require.Error(t, err)
			r.settle()
			require.EqualValues(t, 1, r.era.now.Load(), "it is kept for when it writes")
			r.plugin.set(func(f *faultyPlugin) { f.refused = []byte(refused) })
			r.SetRole(Writes)
			r.settle()
			for range 20 {
				r.pass(30 * time.Second)
				r.write("v")
				require.NotEqual(t, refused, r.ownDEK())
			}
			for _, value := range written {
				_, stale := r.read(value)
				require.True(t, stale)
			}
		})
	}
}

// A KEK that was retired is no loss to one that only reads.
func TestAReaderThatOnceWroteUnderAnotherKeyIDLosesNothing(t *testing.T) {
	r := newRig(t)
	r.SetRole(Reads)
	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "2" })
	r.pass(DefaultHealthyPoll)
	cold, _ := sealedBy(t, "2")
	r.plugin.set(func(f *faultyPlugin) { f.decErr = errNoSuchKEK })
	_, _, err := r.Open(t.Context(), cold, testKey)
	require.Error(t, err)
	r.settle()
	require.Zero(t, r.era.now.Load())
	require.Empty(t, r.Health().Problem)
}

// Whoever does not know the present key_id does not know either whether a KEK that is
// gone was retired or lost.
func TestWithoutAKeyIDNothingIsTakenForLost(t *testing.T) {
	retired, _ := sealedBy(t, "1")
	r := newRig(t)
	r.read(retired)
	f := newFaultyPlugin()
	f.statusErr, f.decErr = errGone, errNoSuchKEK
	reader := &rig{t: t, plugin: f, clock: r.clock}
	reader.Lease = lease(NewProvider(f, Options{Clock: r.clock}), Idle)
	t.Cleanup(reader.End)
	reader.Inherit(r.Provider)
	reader.SetRole(Reads)
	reader.settle()
	f.set(func(f *faultyPlugin) { f.statusErr = status.Error(codes.PermissionDenied, "no Status") })
	cold, _ := sealedBy(t, "2")
	_, _, err := reader.Open(t.Context(), cold, testKey)
	require.ErrorIs(t, err, ErrUnknownKEK)
	reader.pass(DefaultUnhealthyPoll)
	require.Nil(t, reader.samples.Good(under("1")), "it was tried by the one that is retired")
	require.Zero(t, r.era.now.Load())
}

// A plugin that goes to and fro between two key_ids has a DEK made each time.
func TestDEKsThatComeAndGoLeaveNothingBehind(t *testing.T) {
	r := newRig(t)
	for i := range 200 {
		r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = []string{"1", "2"}[i%2] })
		r.pass(DefaultHealthyPoll)
		r.write("v")
	}
	require.EqualValues(t, 100, r.Usage()["1"].Writes)
	for _, k := range r.usage.byKeyID {
		require.LessOrEqual(t, len(k.counts.sealed), maxBudgets)
	}
}
