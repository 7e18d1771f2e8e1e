package envelope

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/internal/stored"
)

// An apiserver restarts in the middle of a rotation. Whatever its plugin then
// says, nothing that is under the former key_id passes for current.
func TestWhatIsUnderAnotherKeyIDThanStatusNamesIsStale(t *testing.T) {
	old := newRig(t).write("v") // under key_id 1
	for name, spoil := range map[string]func(*faultyPlugin){
		"another key_id, unhealthy":       func(f *faultyPlugin) { f.status.KeyID, f.status.Healthz = "2", "cannot encrypt right now" },
		"another key_id, of no version":   func(f *faultyPlugin) { f.status.KeyID, f.status.Version = "2", "" },
		"another key_id, Encrypt fails":   func(f *faultyPlugin) { f.status.KeyID, f.encErr = "2", errGone },
		"another key_id, does not unwrap": func(f *faultyPlugin) { f.status.KeyID, f.encryptKeyID = "2", "3" },
		"Status fails":                    func(f *faultyPlugin) { f.statusErr = errGone },
		"Status names none":               func(f *faultyPlugin) { f.status.KeyID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			p := newFaultyPlugin()
			p.set(spoil)
			r := newRigOn(t, p)
			_, stale := r.read(old)
			require.True(t, stale)
			r.writeFails()

			running := newRig(t) // it was well before
			running.plugin.set(spoil)
			running.pass(DefaultHealthyPoll)
			running.pass(DefaultWriteWindow)
			_, stale = running.read(old)
			require.True(t, stale, "Status named key_id 1 too long ago, if at all")
			running.writeFails()
		})
	}
}

// Status that never comes back is not waited for by what is known: it runs out.
func TestAKeyIDIsKnownForTheWriteWindow(t *testing.T) {
	clock := testingclock.NewFakeClock(testStart)
	p := silentPlugin{newFaultyPlugin()}
	l := lease(NewProvider(p, Options{Clock: clock}), Writes)
	t.Cleanup(l.End)
	require.NoError(t, l.Asked(t.Context()))
	out, err := l.Seal(t.Context(), testPrefix, []byte("v"), testKey)
	require.NoError(t, err)
	stale := func() bool {
		_, stale, err := l.Open(t.Context(), out[len(testPrefix):], testKey)
		require.NoError(t, err)
		return stale
	}
	clock.Step(DefaultWriteWindow - 1)
	require.False(t, stale())
	clock.Step(1)
	require.True(t, stale())
}

// A new key_id counts from when Status names it, though the plugin is not well
// enough to write under it.
func TestAKeyIDThatIsNamedCountsAtOnce(t *testing.T) {
	r := newRig(t)
	old := r.write("v")
	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID, f.encErr = "2", status.Error(codes.PermissionDenied, "no") })
	r.pass(DefaultHealthyPoll)
	_, stale := r.read(old)
	require.True(t, stale)
	_, stale = r.read(r.write("in the window, under the old key"))
	require.True(t, stale)
	require.Equal(t, Denied, r.Health().Problem)

	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "1" })
	r.pass(DefaultUnhealthyPoll)
	require.Empty(t, r.Health().Problem, "back to a key_id that there is a DEK for: what Encrypt said does not matter")
	_, stale = r.read(old)
	require.False(t, stale)
}

// spoiling is a plugin whose Decrypt answers are spoiled.
type spoiling struct {
	*faultyPlugin
	spoil func([]byte, error) ([]byte, error)
}

func (p *spoiling) Decrypt(ctx context.Context, w Wrapped) ([]byte, error) {
	got, err := p.faultyPlugin.Decrypt(ctx, w)
	if p.spoil == nil {
		return got, err
	}
	return p.spoil(got, err)
}

// What only this process could read would be lost with it.
func TestAPluginThatDoesNotGiveADEKBackGetsNothingToWrite(t *testing.T) {
	for name, spoil := range map[string]func([]byte, error) ([]byte, error){
		"refuses":      func([]byte, error) ([]byte, error) { return nil, status.Error(codes.PermissionDenied, "no") },
		"truncates":    func(b []byte, err error) ([]byte, error) { return b[:len(b)-1], err },
		"one bit":      func(b []byte, err error) ([]byte, error) { b[31] ^= 1; return b, err },
		"nothing":      func([]byte, error) ([]byte, error) { return nil, nil },
		"another":      func([]byte, error) ([]byte, error) { return make([]byte, dekSize), nil },
		"longer":       func(b []byte, err error) ([]byte, error) { return append(b, 0), err },
		"knows no KEK": func([]byte, error) ([]byte, error) { return nil, status.Error(codes.NotFound, "gone") },
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range WriteModes() {
				p := &spoiling{newFaultyPlugin(), spoil}
				clock := testingclock.NewFakeClock(testStart)
				r := &rig{t: t, plugin: p.faultyPlugin, clock: clock}
				r.Lease = lease(NewProvider(p, Options{Clock: clock, Mode: mode}), Writes)
				t.Cleanup(r.End)
				require.NoError(t, r.Asked(t.Context()))
				for range 3 {
					r.writeFails("decrypt: ")
					require.NotEmpty(t, r.Health().Problem)
					require.NotEmpty(t, r.Health().Problem)
					require.True(t, r.Health().WritesUntil.IsZero())
					r.pass(DefaultUnhealthyPoll)
				}
				require.Zero(t, r.Health().CachedDEKs)
				for _, secret := range p.wrapped {
					require.Equal(t, p.wrapped[0], secret, "one DEK however often it is tried")
				}

				require.NoError(t, r.followed.Do(t.Context(), func(context.Context) { p.spoil = nil }))
				r.pass(DefaultUnhealthyPoll)
				require.Empty(t, r.Health().Problem)
				r.write("now")
			}
		})
	}
}

// A plugin that wraps every DEK to the same ciphertext can give back one at most.
func TestAPluginThatWrapsToAConstantGetsNothingToWrite(t *testing.T) {
	p := &constant{newFaultyPlugin()}
	l := lease(NewProvider(p, Options{}), Writes)
	defer l.End()
	require.NoError(t, l.Asked(t.Context()))
	require.Equal(t, BadAnswer, l.Health().Problem)
	_, err := l.Seal(t.Context(), testPrefix, []byte("x"), testKey)
	require.ErrorIs(t, err, ErrWritesStopped)
}

type constant struct{ *faultyPlugin }

func (p *constant) Encrypt(ctx context.Context, _ []byte) (Wrapped, error) {
	return p.faultyPlugin.Encrypt(ctx, make([]byte, dekSize))
}

// What Decrypt comes to later counts too, and the window ends with it.
func TestAWriterWhosePluginStopsUnwrappingIsNotReady(t *testing.T) {
	r := newRig(t)
	before := r.write("before")
	foreign := newRig(t).write("of another server")
	r.plugin.set(func(f *faultyPlugin) { f.decErr = status.Error(codes.PermissionDenied, "no") })
	_, _, err := r.Open(t.Context(), foreign, testKey)
	require.ErrorIs(t, err, ErrUnavailable)
	r.settle()
	h := r.Health()
	require.Equal(t, Denied, h.Problem)
	require.NotEmpty(t, h.Problem)
	r.pass(DefaultHealthyPoll)
	require.Equal(t, testStart.Add(DefaultWriteWindow), r.Health().WritesUntil, "not prolonged")
	r.write("in the window")
	r.pass(DefaultWriteWindow)
	r.writeFails()
	r.read(before)

	r.plugin.live()
	r.pass(DefaultUnhealthyPoll)
	require.Empty(t, r.Health().Problem, "found out without a read")
	r.write("after")
}

func TestADEKInTheClearAnywhereInAnAnswerIsRefused(t *testing.T) {
	for name, reveal := range map[string]func(*Wrapped, []byte){
		"ciphertext":       func(w *Wrapped, dek []byte) { w.Ciphertext = append([]byte("wrapped:"), dek...) },
		"annotation":       func(w *Wrapped, dek []byte) { w.Annotations = map[string][]byte{"a.example.com": bytes.Clone(dek)} },
		"annotation's key": func(w *Wrapped, dek []byte) { w.Annotations = map[string][]byte{string(dek) + ".example.com": nil} },
		"key_id":           func(w *Wrapped, dek []byte) { w.KeyID = "1" + string(dek) },
	} {
		p := &revealing{newFaultyPlugin(), reveal}
		l := lease(NewProvider(p, Options{}), Writes)
		require.NoError(t, l.Asked(t.Context()))
		require.Equal(t, BadAnswer, l.Health().Problem, name)
		require.ErrorContains(t, l.Health().Err, "in the clear", name)
		l.End()
	}
}

type revealing struct {
	*faultyPlugin
	reveal func(*Wrapped, []byte)
}

func (p *revealing) Encrypt(ctx context.Context, dek []byte) (Wrapped, error) {
	w, err := p.faultyPlugin.Encrypt(ctx, dek)
	p.reveal(&w, dek)
	return w, err
}

func TestWhatAPluginSaysIsCutWhereverItIsKept(t *testing.T) {
	long := status.Error(codes.Internal, strings.Repeat("x", 4<<20))
	object := newRig(t).write("v")
	const bound = 2 << 10 // our own words stand around it, and in the error of a write it is told once
	for _, spoil := range []func(*faultyPlugin){
		func(f *faultyPlugin) { f.statusErr = long },
		func(f *faultyPlugin) { f.encErr = long },
		func(f *faultyPlugin) { f.decErr = long },
		func(f *faultyPlugin) { f.status.Healthz = strings.Repeat("x", 1<<20) },
		func(f *faultyPlugin) { f.status.Version = strings.Repeat("x", 1<<20) },
		func(f *faultyPlugin) { f.status.KeyID = strings.Repeat("x", 1<<20) },
		func(f *faultyPlugin) { f.annotations = map[string][]byte{strings.Repeat("x", 1<<14): nil} },
	} {
		p := newFaultyPlugin()
		p.set(spoil)
		r := newRigOn(t, p)
		require.Error(t, r.Health().Err)
		require.Less(t, len(r.Health().Err.Error()), bound)
		_, err := r.Seal(t.Context(), testPrefix, nil, testKey)
		require.Error(t, err)
		require.Less(t, len(err.Error()), bound)
		if _, _, err := r.Open(t.Context(), object, testKey); err != nil {
			require.Less(t, len(err.Error()), bound)
		}
	}
}

// The last try of a file made a DEK ahead: it costs the plugin one Encrypt and
// the provider nothing that can be seen, however often it is tried.
func TestPrepareLeavesNoTrace(t *testing.T) {
	object := newRig(t).write("v")
	plugin := newFaultyPlugin()
	r, _ := onlooker(t, plugin)
	r.read(object)
	before, known := r.Health(), *r.followed.Load()
	for range 10000 {
		require.NoError(t, r.Prepare(t.Context()))
	}
	require.Equal(t, before, r.Health())
	require.Equal(t, known.Encrypt, r.followed.Load().Encrypt)
	require.Equal(t, known.Decrypt, r.followed.Load().Decrypt)
	_, encrypts, decrypts := plugin.calls()
	require.Equal(t, []int{1, 2}, []int{encrypts, decrypts})
	_, err := r.Seal(t.Context(), testPrefix, nil, testKey)
	require.ErrorIs(t, err, ErrWritesStopped)

	r.SetRole(Writes)
	r.write("at once, with what was made ready")
	r.settle()
	_, encrypts, _ = plugin.calls()
	require.Equal(t, 1, encrypts)
	require.Empty(t, r.Health().Problem)
	require.Equal(t, map[string]Use{"1": {Writes: 1, Reads: 1}}, r.Usage())
}

// Neither does a try that fails.
func TestAPrepareThatFailsSaysWhyAndLeavesNoTrace(t *testing.T) {
	object := newRig(t).write("v")
	for name, c := range map[string]struct {
		spoil   func(*faultyPlugin)
		problem string
		seen    bool // by the Status that a reader is asked for too
	}{
		"unhealthy":  {func(f *faultyPlugin) { f.status.Healthz = "sealed" }, "sealed", true},
		"no Encrypt": {func(f *faultyPlugin) { f.encErr = status.Error(codes.PermissionDenied, "no kms:Encrypt") }, "no kms:Encrypt", false},
		"no Decrypt": {func(f *faultyPlugin) { f.decErr = status.Error(codes.PermissionDenied, "no kms:Decrypt") }, "no kms:Decrypt", false},
		"disagrees":  {func(f *faultyPlugin) { f.encryptKeyID = "2" }, "not settled", false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := onlooker(t, newFaultyPlugin())
			r.read(object)
			r.DropAged() // which notes when that was
			before := r.Health()
			r.plugin.set(c.spoil)
			r.clock.Step(2 * time.Second)
			for range 5 {
				require.ErrorContains(t, r.Prepare(t.Context()), c.problem)
			}
			after := r.Health()
			if !c.seen {
				before.LastHealthy = after.LastHealthy // Status was asked, and is well
				require.Equal(t, before, after)
			}
			require.False(t, after.Writes)

			r.plugin.set(healthy("1"))
			r.plugin.set(func(f *faultyPlugin) { f.encryptKeyID = "" })
			r.clock.Step(DefaultHealthyPoll) // what answered wrongly is not asked to Encrypt sooner
			require.NoError(t, r.Prepare(t.Context()))
		})
	}
}

// A provider that has no role yet is asked for being made ready alone.
func TestPrepareAsksAPluginThatNobodyUsesYet(t *testing.T) {
	plugin := newFaultyPlugin()
	clock := testingclock.NewFakeClock(testStart)
	r := &rig{t: t, plugin: plugin, clock: clock, Lease: lease(NewProvider(plugin, Options{Clock: clock}), Idle)}
	defer r.End()
	require.NoError(t, r.Prepare(t.Context()))
	r.clock.Step(24 * time.Hour)
	r.settle()
	statuses, encrypts, decrypts := plugin.calls()
	require.Equal(t, []int{1, 1, 1}, []int{statuses, encrypts, decrypts})

	release := r.hold()
	r.SetRole(Writes)
	_, err := r.Seal(t.Context(), testPrefix, nil, testKey)
	release()
	require.ErrorIs(t, err, ErrWritesStopped, "that the plugin was well is a day ago")
	r.settle()
	r.write("now it was asked")
	_, encrypts, _ = plugin.calls()
	require.Equal(t, 2, encrypts, "what it could unwrap a day ago says nothing")
}

// A DEK that was made ready under a key_id that is no longer named is not used.
func TestWhatWasMadeReadyIsOfItsKeyID(t *testing.T) {
	r, _ := onlooker(t, newFaultyPlugin())
	require.NoError(t, r.Prepare(t.Context()))
	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "2" })
	r.pass(DefaultHealthyPoll)
	r.SetRole(Writes)
	r.settle()
	_, stale := r.read(r.write("x"))
	require.False(t, stale)
	require.Equal(t, HashKeyID("2"), r.Health().KeyIDHash)
}

// A random source that fails gives no DEK and no nonce, and no panic.
func TestARandomSourceThatFails(t *testing.T) {
	failed := errors.New("no entropy")
	for name, random := range map[string]io.Reader{
		"at once":                         iotest.ErrReader(failed),
		"in the DEK":                      io.MultiReader(bytes.NewReader(make([]byte, dekSize-1)), iotest.ErrReader(failed)),
		"in the fixed part of a nonce":    io.MultiReader(bytes.NewReader(make([]byte, dekSize+fixedSize-1)), iotest.ErrReader(failed)),
		"short, and says no more":         bytes.NewReader(make([]byte, 3)),
		"in the fixed part, says no more": bytes.NewReader(make([]byte, dekSize+1)),
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "fixed part") {
				counted(t)
			}
			r := newRigOn(t, newFaultyPlugin(), func(o *Options) { o.Random = random })
			require.Equal(t, Failed, r.Health().Problem)
			r.writeFails()
			r.pass(DefaultUnhealthyPoll)
			require.NotEmpty(t, r.Health().Problem)
		})
	}
	sealing := io.MultiReader(bytes.NewReader(make([]byte, dekSize+infoSize-1)), iotest.ErrReader(failed))
	r := newRigOn(t, newFaultyPlugin(), func(o *Options) { o.Random, o.Mode = sealing, Seed })
	_, err := r.Seal(t.Context(), testPrefix, []byte("x"), testKey)
	require.ErrorIs(t, err, failed)
}

func TestAPendingDEKIsWipedOnceItIsBuilt(t *testing.T) {
	r := newRigOn(t, newFaultyPlugin(), func(o *Options) {})
	m := &maker{pending: &pendingDEK{As: "DEK", secret: [dekSize]byte{1, 2, 3}}}
	held := m.pending
	m.drop()
	require.Equal(t, [dekSize]byte{}, held.secret)
	require.Nil(t, m.pending)
	require.NoError(t, r.followed.Do(t.Context(), func(context.Context) { require.Nil(t, r.maker.pending) }))
}

// What the plugin unwrapped is wiped once it is a cipher.
func TestWhatWasUnwrappedIsWiped(t *testing.T) {
	object := newRig(t).write("v")
	p := &keeping{faultyPlugin: newFaultyPlugin()}
	l := lease(NewProvider(p, Options{}), Writes)
	defer l.End()
	require.NoError(t, l.Asked(t.Context()))
	_, _, err := l.Open(t.Context(), object, testKey)
	require.NoError(t, err)
	require.Len(t, p.given, 2)
	for _, secret := range p.given {
		require.Equal(t, make([]byte, dekSize), secret)
	}
}

// keeping keeps what it gave out, which its caller owns.
type keeping struct {
	*faultyPlugin
	given [][]byte
}

func (p *keeping) Decrypt(ctx context.Context, w Wrapped) ([]byte, error) {
	got, err := p.faultyPlugin.Decrypt(ctx, w)
	p.given = append(p.given, got)
	return got, err
}

// No read is lost, though key_ids come and go while they are counted.
func TestNoReadIsLost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKs = 2 })
	payload := r.write("v")
	object, err := stored.Parse(payload)
	require.NoError(t, err)
	const keys = 5000
	seen, last := map[string]uint64{}, map[string]Use{}
	take := func() {
		now := r.Usage()
		for id, u := range now {
			seen[id] += u.Since(last[id]).Reads
		}
		last = now
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				take()
			}
		}
	}()
	for i := range keys {
		s := object.Source
		s.KeyID = fmt.Sprint("k", i)
		other := append(stored.AppendDataHead(nil, len(object.Data)), object.Data...)
		r.read(append(other, s.Tail()...))
	}
	close(stop)
	<-done
	take()
	for i := range keys {
		require.EqualValues(t, 1, seen[fmt.Sprint("k", i)], i)
	}
	require.EqualValues(t, keys, r.Health().Reads)
}

// A DEK that a rotation or a removal has left behind is no longer listed.
func TestAKeyIDWithoutADEKIsForgotten(t *testing.T) {
	var u usage
	use := u.of("1")
	use.reads.Add(0)
	require.Len(t, u.byKeyID, 1)
	p := &Provider{opts: Options{}.withDefaults(), memory: &memory{}}
	p.usage.of("gone").reads.Add(0)
	require.Eventually(t, func() bool { runtime.GC(); return p.usage.byKeyID["gone"].live.Value() == nil }, testWait, testTick)
	require.Equal(t, map[string]Use{"gone": {Reads: 1}}, p.Usage(), "its last counts")
	p.DropAged()
	require.Equal(t, map[string]Use{"gone": {Reads: 1}}, p.Usage(), "whoever asks between two times can still be told")
	p.DropAged()
	require.Empty(t, p.Usage())
	total, _ := p.usage.latest(p.opts.Clock.Now())
	require.Equal(t, Use{Reads: 1}, total)
	require.Equal(t, Use{Reads: 3}, Use{Reads: 3}.Since(Use{Reads: 5}), "it began anew")
}
