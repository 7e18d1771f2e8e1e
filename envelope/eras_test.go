package envelope

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// pushOut reads so many other values that what is not used leaves the cache.
func (r *rig) pushOut() {
	for range r.opts.MaxDEKs + r.opts.MaxDEKs/2 {
		other, _ := sealedBy(r.t, "1")
		r.read(other)
	}
}

// steady lets time go by, and requires that a plugin which is called well is written
// with.
func (r *rig) steady(times int, step time.Duration) {
	r.t.Helper()
	for range times {
		well := r.Health().Problem == ""
		if _, err := r.Seal(r.t.Context(), testPrefix, []byte("v"), testKey); well {
			require.NoError(r.t, err)
		}
		r.clock.Step(step)
		r.settle()
	}
	r.write("in the end")
}

// What a reader once wrote with is in no place but its own when it has left the cache.
func TestWhatAReaderOnceWroteStaysReadableAfterALoss(t *testing.T) {
	for name, find := range map[string]func(*rig){
		"found by making ready": func(r *rig) {
			r.clock.Step(2 * time.Second)
			require.Error(r.t, r.Prepare(r.t.Context()))
		},
		"found by a trial": func(r *rig) {
			r.followed.Suspect("1", plugin.Troublef(Failed, "x"))
			r.settle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.MaxDEKAge = 10 * time.Minute })
			own, dek := r.write("own"), r.ownDEK()
			r.pass(11 * time.Minute)
			r.SetRole(Reads)
			r.settle()
			r.DropAged()
			r.ofOld(dek, func(f *faultyPlugin) { f.decErr = errNoSuchKEK })
			find(r)
			require.EqualValues(t, 1, r.era.Load())
			r.read(own)
		})
	}
}

// A provider that goes leaves its DEK to those that share the memory.
func TestWhatAProviderWroteThatIsGoneStaysReadable(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKs = 16 })
	heir := r.heir()
	own := heir.write("own")
	r.pushOut()
	heir.End()
	r.plugin.set(func(f *faultyPlugin) { f.decErr = errNoSuchKEK })
	r.read(own)
}

// A loss may be found at any moment of looking for what is old.
func TestALossDuringDropAgedLosesNothing(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKAge = 10 * time.Minute })
	other, _ := sealedBy(t, "1")
	r.read(other)
	r.pass(time.Hour)
	r.cache.mu.Lock() // another is adding what it met
	done := make(chan struct{})
	go func() { r.DropAged(); close(done) }()
	r.era.Add(1)
	r.cache.mu.Unlock()
	<-done
	r.plugin.set(func(f *faultyPlugin) { f.decErr = errNoSuchKEK })
	r.read(other)
}

// What can be had again goes before what cannot.
func TestYoungDEKsDoNotPushOutThoseOfALostKEK(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKs = 16 })
	lost := [][]byte{r.write("own")}
	for range 11 {
		other, _ := sealedBy(t, "1")
		r.read(other)
		lost = append(lost, other)
	}
	r.loseKEK()
	r.reconnect()
	r.pass(DefaultUnhealthyPoll)
	r.plugin.live()
	for range 3 {
		r.pushOut()
	}
	require.LessOrEqual(t, r.cache.len(), 16)
	r.plugin.set(func(f *faultyPlugin) { f.refused, f.decErr = nil, errNoSuchKEK })
	for _, value := range lost {
		r.read(value)
	}
}

// Of nothing but such the one that was not used for longest goes, for what is new.
func TestWhereAllAreOfALostKEKThereIsStillRoom(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKs = 16 })
	r.pushOut()
	r.loseKEK()
	r.reconnect()
	r.pass(DefaultUnhealthyPoll)
	r.plugin.live()
	for range 40 {
		other, _ := sealedBy(t, "1")
		r.read(other)
		_, _, decrypts := r.plugin.calls()
		r.read(other)
		_, _, after := r.plugin.calls()
		require.Equal(t, decrypts, after)
		require.LessOrEqual(t, r.cache.len(), 16)
	}
}

// One loss is one: what was wrapped before it is no evidence of another.
func TestALossIsFoundOnce(t *testing.T) {
	t.Run("by a sample from before", func(t *testing.T) {
		sample, _ := sealedBy(t, "1")
		cold, _ := sealedBy(t, "1")
		r := newRig(t)
		r.read(sample)
		r.loseKEK()
		r.reconnect()
		r.pass(DefaultUnhealthyPoll)
		after, fresh := r.write("after"), []byte(r.ownDEK())
		r.plugin.set(func(f *faultyPlugin) { f.refused, f.spared = nil, fresh })
		_, _, err := r.Open(t.Context(), cold, testKey)
		require.ErrorIs(t, err, ErrUnknownKEK)
		r.settle()
		require.Empty(t, r.Health().Problem)
		_, stale := r.read(after)
		require.False(t, stale)
	})
	t.Run("by a value whose DEK was asked for before", func(t *testing.T) {
		cold, ciphertext := sealedBy(t, "1")
		r := newRig(t)
		heir := r.heir()
		gate, opened := make(chan struct{}), make(chan error)
		heir.plugin.set(func(f *faultyPlugin) { f.decrypting = gate })
		go func() { _, _, err := heir.Open(t.Context(), cold, testKey); opened <- err }()
		require.Eventually(t, func() bool { _, _, d := heir.plugin.calls(); return d >= 2 }, testWait, testTick)
		r.loseKEK()
		r.reconnect()
		close(gate)
		require.NoError(t, <-opened)
		heir.plugin.set(func(f *faultyPlugin) { f.decErr, f.refused = errNoSuchKEK, []byte(ciphertext) })
		heir.pass(DefaultUnhealthyPoll)
		heir.write("v")
		heir.followed.Suspect("1", plugin.Troublef(Failed, "x"))
		heir.settle()
		require.EqualValues(t, 1, r.era.Load())
	})
	t.Run("by another that was slow", func(t *testing.T) {
		r := newRig(t)
		heir := r.heir()
		gate := make(chan struct{})
		old := heir.ownDEK()
		heir.plugin.set(func(f *faultyPlugin) { f.decrypting, f.decErr, f.refused = gate, errNoSuchKEK, []byte(old) })
		heir.clock.Step(time.Second)
		heir.plugin.wake <- struct{}{}
		require.Eventually(t, func() bool { _, _, d := heir.plugin.calls(); return d >= 2 }, testWait, testTick)
		r.loseKEK()
		r.reconnect()
		r.pass(DefaultUnhealthyPoll)
		after := r.write("after")
		close(gate)
		heir.settle()
		_, stale := r.read(after)
		require.False(t, stale)
		r.write("again")
	})
	t.Run("by one that was made ready before", func(t *testing.T) {
		r := newRig(t)
		heir := r.heir()
		heir.SetRole(Reads)
		r.loseKEK()
		r.reconnect()
		spare := r.draftDEK(t, 0)
		heir.writer.keepSpare(spare, r.clock.Now()) // as one that was under way then
		heir.plugin.set(func(f *faultyPlugin) { f.decErr, f.refused = errNoSuchKEK, spare.source.EncryptedDEK })
		heir.followed.Suspect("1", plugin.Troublef(Failed, "x"))
		heir.settle()
		require.EqualValues(t, 1, r.era.Load())
		require.Empty(t, heir.Health().Problem)
	})
}

// draftDEK is a DEK of an era.
func (r *rig) draftDEK(t *testing.T, era uint32) *writeDEK {
	r.plugin.live()
	dek, trouble := r.make(t.Context(), r.draft(), "start")
	require.Nil(t, trouble)
	dek.opener.era = era
	return dek
}

// A plugin that is called well is written with, whatever was under way at a loss.
func TestAfterALossAPluginIsWellWhenItIsWrittenWith(t *testing.T) {
	t.Run("a DEK was wrapped before and is unwrapped after", func(t *testing.T) {
		r := newRig(t)
		own := r.ownDEK()
		r.plugin.set(func(f *faultyPlugin) { f.decErr = errGone })
		r.reconnect()
		for range 19 {
			r.pass(DefaultUnhealthyPoll)
		}
		require.NotNil(t, r.maker.pending)
		r.ofOld(own, func(f *faultyPlugin) { f.decErr = errNoSuchKEK })
		r.clock.Step(DefaultUnhealthyPoll)
		r.settle()
		r.steady(12, time.Second)
	})
	t.Run("the same, and another finds the loss", func(t *testing.T) {
		r := newRig(t)
		heir := r.heir()
		heir.plugin.set(func(f *faultyPlugin) { f.status.KeyID, f.decErr = "2", errGone })
		heir.pass(DefaultHealthyPoll)
		require.NotNil(t, heir.maker.pending)
		heir.pass(DefaultUnhealthyPoll)
		r.lose(r.Provider, 0)
		heir.plugin.set(func(f *faultyPlugin) { f.decErr = nil })
		heir.steady(12, time.Second)
	})
	t.Run("another finds it, after many calls that failed", func(t *testing.T) {
		r := newRig(t)
		heir := r.heir()
		for range 6 {
			heir.clock.Step(11 * time.Second)
			heir.followed.Look()
			heir.settle()
		}
		r.lose(r.Provider, 0)
		heir.steady(12, time.Second)
	})
	t.Run("another finds it while this one waits for an answer", func(t *testing.T) {
		r := newRig(t)
		heir := r.heir()
		for range 6 {
			heir.clock.Step(11 * time.Second)
			heir.followed.Look()
			heir.settle()
		}
		gate := make(chan struct{})
		heir.plugin.set(func(f *faultyPlugin) { f.decrypting = gate })
		heir.clock.Step(time.Second)
		heir.plugin.wake <- struct{}{}
		require.Eventually(t, func() bool { _, _, d := heir.plugin.calls(); return d >= 2 }, testWait, testTick)
		r.lose(r.Provider, 0)
		require.NotEmpty(t, heir.Health().Problem)
		close(gate)
		heir.settle()
		heir.steady(12, time.Second)
	})
}

// The KEK is made anew under the same key_id, and before that is seen the DEK is used
// up: nobody tries it again afterwards.
func TestADEKThatIsUsedUpIsTriedOnceMore(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxWrites = 8 })
	own := r.write("own")
	r.loseKEK()
	for range 20 {
		r.write("v")
	}
	_, stale := r.read(own)
	require.True(t, stale)
}

// Looking ahead leaves DEKs that have opened nothing. One damaged value puts such a DEK
// in doubt; when the plugin does not unwrap it, it is all there is for the good ones.
func TestADEKInDoubtOpensWhatItCan(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(*rig)
		means error
	}{
		"the plugin is away": {func(r *rig) { r.plugin.die() }, ErrUnavailable},
		"its KEK is lost": {func(r *rig) {
			r.loseKEK()
			r.reconnect()
			r.plugin.set(func(f *faultyPlugin) { f.refused = nil })
		}, ErrUnknownKEK},
	} {
		t.Run(name, func(t *testing.T) {
			good, _ := sealedBy(t, "1")
			r := newRig(t)
			require.NoError(t, r.Warm(good)(t.Context()))
			damaged := append([]byte(nil), good...)
			damaged[10] ^= 1
			c.end(r)
			_, _, err := r.Open(t.Context(), damaged, testKey)
			require.ErrorIs(t, err, ErrCorrupt, "the DEK was the plugin's last word")
			_, _, err = r.Open(t.Context(), damaged, testKey)
			require.ErrorIs(t, err, c.means, "the plugin has to be asked, and cannot be")
			for range 3 {
				got, _ := r.read(good)
				require.NotEmpty(t, got)
			}
			_, _, err = r.Open(t.Context(), damaged, testKey)
			require.ErrorIs(t, err, ErrCorrupt, "the DEK has opened something")
			require.LessOrEqual(t, r.doubted.len(), maxDoubted)
		})
	}
}

// Every other call fails when an outage ends, in whatever words a plugin has.
func TestAnOutageThatEndsBitByBitLosesNothing(t *testing.T) {
	for name, words := range map[string]error{"away": errGone, "no code": errors.New("the KMS is away"), "busy": status.Error(codes.ResourceExhausted, "busy")} {
		for first := range 2 {
			t.Run(fmt.Sprint(name, first), func(t *testing.T) {
				other, _ := sealedBy(t, "1")
				r, f := newFailing(t)
				own := r.write("own")
				r.read(other)
				f.fails = func() error { return words }
				r.reconnect()
				for range 20 {
					r.pass(DefaultUnhealthyPoll)
				}
				calls := first
				f.fails = func() error {
					if calls++; calls%2 == 0 {
						return words
					}
					return nil
				}
				for range 60 {
					r.pass(DefaultUnhealthyPoll)
				}
				for _, value := range [][]byte{own, other} {
					_, stale := r.read(value)
					require.False(t, stale)
				}
			})
		}
	}
}

// What a reader saw refused between being made ready and beginning to write, by whatever
// that was, does not keep it from writing with a plugin that serves.
func TestAWriterBeginsHoweverItsPluginWasSeenBefore(t *testing.T) {
	away := status.Error(codes.DeadlineExceeded, "no answer")
	for name, c := range map[string]struct {
		err  error
		lost bool // what was made ready
	}{
		"a former KEK hangs":                    {away, false},
		"a former KEK is away":                  {errGone, false},
		"what was made ready is lost, unworded": {errors.New("no such key"), true},
	} {
		t.Run(name, func(t *testing.T) {
			former, ciphertext := sealedBy(t, "1")
			cold, coldCiphertext := sealedBy(t, "1")
			r, _ := onlooker(t, newFaultyPlugin())
			r.read(former)
			r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "2" })
			r.pass(DefaultHealthyPoll)
			require.NoError(t, r.Prepare(t.Context()))
			refused := []string{ciphertext, coldCiphertext}
			if c.lost {
				refused = append(refused, string(r.writer.aside().source.EncryptedDEK))
			}
			r.plugin.set(func(f *faultyPlugin) { f.decErr, f.refusedAll = c.err, refused })
			_, _, err := r.Open(t.Context(), cold, testKey)
			require.Error(t, err)
			r.followed.Suspect("2", plugin.Troublef(Failed, "x"))
			r.settle()
			r.SetRole(Writes)
			for range 6 {
				r.pass(DefaultUnhealthyPoll)
			}
			r.steady(30, 10*time.Second)
			require.Empty(t, r.Health().Problem)
		})
	}
}

// Whatever becomes of the KMS of a former key_id, the writer under the present one is
// well, and nothing under that is stale.
func TestTheKMSOfAFormerKeyIDIsNotThePlugins(t *testing.T) {
	for _, words := range []error{errGone, status.Error(codes.DeadlineExceeded, "no answer"), status.Error(codes.FailedPrecondition, "disabled"), errNoSuchKEK, errDenied, errors.New("odd")} {
		t.Run(words.Error(), func(t *testing.T) {
			former, ciphertext := sealedBy(t, "1")
			cold, coldCiphertext := sealedBy(t, "1")
			r := newRig(t)
			r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "2" })
			r.pass(DefaultHealthyPoll)
			own := r.write("own")
			r.read(former)
			r.plugin.set(func(f *faultyPlugin) { f.decErr, f.refusedAll = words, []string{ciphertext, coldCiphertext} })
			for range 60 {
				_, _, err := r.Open(t.Context(), cold, testKey)
				require.Error(t, err)
				r.pass(DefaultUnhealthyPoll)
				require.Empty(t, r.Health().Problem)
				r.write("v")
			}
			_, stale := r.read(own)
			require.False(t, stale)
		})
	}
}

// A DEK that was refused, and set aside as the role changed, is looked into when another
// is made: it may be lost.
func TestADEKThatIsRefusedIsNotForgottenWithTheRole(t *testing.T) {
	r := newRig(t)
	own := r.write("own")
	r.ofOld(r.ownDEK(), func(f *faultyPlugin) { f.decErr = errors.New("no such key") })
	r.reconnect()
	r.SetRole(Reads)
	r.pass(4 * time.Minute)
	r.SetRole(Writes)
	for range 3 {
		r.pass(DefaultUnhealthyPoll)
	}
	require.Empty(t, r.Health().Problem)
	r.write("v")
	_, stale := r.read(own)
	require.True(t, stale)
}

// One call too many among the refusals is no answer.
func TestALossIsFoundThoughThePluginIsBusyNowAndThen(t *testing.T) {
	r, f := newFailing(t)
	own := r.write("own")
	lost := r.ownDEK()
	n := 0
	f.refuses = func(w Wrapped) error {
		if string(w.Ciphertext) != lost {
			return nil
		}
		if n++; n%3 == 0 {
			return status.Error(codes.ResourceExhausted, "slow down")
		}
		return errors.New("no such key")
	}
	r.reconnect()
	for range 30 {
		r.pass(DefaultUnhealthyPoll)
	}
	require.Empty(t, r.Health().Problem)
	_, stale := r.read(own)
	require.True(t, stale)
}

// A key version that may no longer be used, under a key_id that stays, must not stop
// writes for ever: what it wrapped is stale, and readable from memory.
func TestASampleThatIsRefusedForGoodStopsNoWritesForEver(t *testing.T) {
	for name, words := range map[string]error{"no code": errors.New("version too old"), "denied": errDenied, "disabled": status.Error(codes.FailedPrecondition, "disabled")} {
		t.Run(name, func(t *testing.T) {
			sample, ciphertext := sealedBy(t, "1")
			cold, coldCiphertext := sealedBy(t, "1")
			r := newRig(t)
			own := r.write("own")
			r.read(sample)
			f := r.plugin
			f.set(func(f *faultyPlugin) { f.decErr, f.refusedAll = words, []string{ciphertext, coldCiphertext} })
			_, _, err := r.Open(t.Context(), cold, testKey)
			require.ErrorIs(t, err, words)
			for range 40 {
				r.pass(DefaultUnhealthyPoll)
			}
			require.Empty(t, r.Health().Problem)
			_, stale := r.read(r.write("after"))
			require.False(t, stale)
			for _, value := range [][]byte{own, sample} {
				_, stale = r.read(value)
				require.True(t, stale)
			}
		})
	}
}

// The same after a loss that was found in such words: what is read cold speaks of the
// loss that is known, and of no other.
func TestAColdReadAfterALossStopsNoWrites(t *testing.T) {
	sample, ciphertext := sealedBy(t, "1")
	cold, coldCiphertext := sealedBy(t, "1")
	r := newRig(t, func(o *Options) { o.MaxDEKAge = 10 * time.Minute })
	r.read(sample)
	own := r.write("own")
	r.pass(11 * time.Minute)
	r.DropAged()
	r.read(own)
	lost := []string{ciphertext, coldCiphertext, r.ownDEK()}
	r.plugin.set(func(f *faultyPlugin) { f.decErr, f.refusedAll = errors.New("no such key"), lost })
	r.reconnect()
	for range 25 {
		r.pass(DefaultUnhealthyPoll)
		r.DropAged()
	}
	require.Empty(t, r.Health().Problem)
	_, _, err := r.Open(t.Context(), cold, testKey)
	require.Error(t, err)
	for range 60 {
		r.pass(DefaultUnhealthyPoll)
		r.DropAged()
		r.write("v")
	}
	require.Empty(t, r.Health().Problem)
	_, stale := r.read(own)
	require.True(t, stale)
}

// Where the cache is nearly full of what is lost, what others write since has room too.
func TestAfterALossTheLivingHaveTheirShareOfTheCache(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKs = 64 })
	r.pushOut()
	r.loseKEK()
	r.reconnect()
	r.pass(DefaultUnhealthyPoll)
	r.plugin.live()
	living := make([][]byte, 6)
	for i := range living {
		living[i], _ = sealedBy(t, "1")
	}
	calls := 0
	for range 20 {
		_, _, calls = r.plugin.calls()
		for _, value := range living {
			r.read(value)
		}
	}
	_, _, after := r.plugin.calls()
	require.Equal(t, calls, after)
}

// What is about to be written with again is found lost by the trial before that.
func TestWhatIsTakenUpAgainStaysReadableWhenItIsLost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKAge = 10 * time.Minute })
	own, dek := r.write("own"), r.ownDEK()
	for range 11 {
		r.pass(DefaultHealthyPoll)
	}
	r.SetRole(Reads)
	r.settle()
	r.DropAged()
	r.plugin.set(func(f *faultyPlugin) { f.statusErr = errGone })
	r.clock.Step(2 * time.Second)
	r.plugin.wake <- struct{}{}
	r.settle()
	r.SetRole(Writes)
	r.settle()
	r.plugin.set(func(f *faultyPlugin) { f.statusErr = nil })
	r.ofOld(dek, func(f *faultyPlugin) { f.decErr = errNoSuchKEK })
	r.clock.Step(2 * time.Second)
	r.plugin.wake <- struct{}{}
	r.settle()
	require.EqualValues(t, 1, r.era.Load())
	r.read(own)
}

// What was refused before it was wrapped anew says nothing of the plugin for ever.
func TestAPendingDEKThatWasRefusedIsForgotten(t *testing.T) {
	f := newFaultyPlugin()
	f.decErr = errors.New("no such ciphertext")
	r := newRigOn(t, f)
	first := string(r.maker.pending.source.EncryptedDEK)
	r.plugin.set(func(f *faultyPlugin) { f.refused, f.salt = []byte(first), "\n" })
	for range 8 {
		r.pass(DefaultUnhealthyPoll)
	}
	require.Empty(t, r.Health().Problem)
	r.SetRole(Reads)
	r.settle()
	r.followed.Suspect("1", plugin.Troublef(Failed, "one value"))
	r.settle()
	r.pass(DefaultUnhealthyPoll)
	require.Empty(t, r.Health().Problem)
}

// Many DEKs of one provider do not end the count of one that another writes with.
func TestWhatAnotherWritesIsCountedHoweverManyDEKsThereAre(t *testing.T) {
	r := newRig(t)
	heir := r.heir()
	heir.write("one")
	for i := range 60 {
		r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = []string{"2", "1"}[i%2] })
		r.clock.Step(2 * time.Second)
		r.plugin.wake <- struct{}{}
		r.settle()
	}
	before := r.Usage()["1"].Writes
	for range 100 {
		heir.write("v")
	}
	require.EqualValues(t, 100, r.Usage()["1"].Writes-before)
}
