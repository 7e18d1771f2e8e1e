package envelope

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// failInVain has many calls fail that bring no news, so that the next is heard late.
func (r *rig) failInVain() {
	for range 6 {
		r.clock.Step(11 * time.Second)
		r.followed.Look()
		r.settle()
	}
}

// What a reader once wrote with is in no place but its own when it has left the cache.
func TestWhatAReaderOnceWroteStaysReadableAfterALoss(t *testing.T) {
	for name, find := range map[string]func(*rig){
		"found by making ready": func(r *rig) {
			r.clock.Step(2 * time.Second)
			require.Error(r.t, r.Prepare(r.t.Context()))
		},
		"found by a trial": func(r *rig) {
			r.suspect()
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
			require.EqualValues(t, 1, r.era.now.Load())
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
	r.era.now.Add(1)
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
		heir.suspect()
		require.EqualValues(t, 1, r.era.now.Load())
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
		heir.suspect()
		require.EqualValues(t, 1, r.era.now.Load())
		require.Empty(t, heir.Health().Problem)
	})
}

// draftDEK is a DEK of an era.
func (r *rig) draftDEK(t *testing.T, era uint32) *writeDEK {
	r.plugin.live()
	dek, trouble := r.make(t.Context(), r.draft(), "start")
	require.Nil(t, trouble)
	dek.opener.era.Store(era)
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
		heir.failInVain()
		r.lose(r.Provider, 0)
		heir.steady(12, time.Second)
	})
	t.Run("another finds it while this one waits for an answer", func(t *testing.T) {
		r := newRig(t)
		heir := r.heir()
		heir.failInVain()
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
	require.EqualValues(t, 1, r.era.now.Load())
	r.read(own)
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
