package envelope

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// What was written with, set aside as the role changed and then found lost, is stale and
// stays readable, whatever is written with meanwhile.
func TestASpareThatWroteIsNotForgottenWhenItIsLost(t *testing.T) {
	for name, c := range map[string]struct{ before, after func(*rig) }{
		"an outage between Prepare and the role": {
			before: func(r *rig) {
				require.NoError(r.t, r.Prepare(r.t.Context()))
				r.plugin.die()
				r.clock.Step(2 * time.Second)
				r.plugin.wake <- struct{}{}
				r.settle()
				r.SetRole(Writes)
				for range 24 {
					r.pass(DefaultUnhealthyPoll)
				}
				r.plugin.live()
			},
			after: func(r *rig) { r.pass(DefaultUnhealthyPoll) },
		},
		"it is too old to write with": {before: func(*rig) {}, after: func(r *rig) {
			r.SetRole(Writes)
			r.settle()
		}},
		"found as more is to be written": {before: func(r *rig) {
			r.SetRole(Writes)
			r.settle()
		}, after: func(r *rig) {
			r.clock.Step(2 * time.Second)
			_ = r.Prepare(r.t.Context())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.MaxDEKAge = time.Hour })
			own, lost := r.write("own"), r.ownDEK()
			r.SetRole(Reads)
			r.settle()
			r.clock.Step(4 * time.Minute)
			r.settle()
			c.before(r)
			r.refuse(errNoSuchKEK, lost)
			c.after(r)
			for range 70 {
				r.pass(DefaultHealthyPoll)
				r.DropAged()
				r.isStale(true, own)
				r.isStale(false, r.write("v"))
			}
			require.Empty(t, r.Health().Problem)
		})
	}
}

// A DEK in use that is in question is tried, also if another provider called it so: it
// is not written with when the plugin says that it is lost, and the window is not
// prolonged when it says anything else.
func TestADEKInUseThatIsInQuestionIsTried(t *testing.T) {
	for name, words := range inOtherWords {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			until := r.Health().WritesUntil
			r.refuse(words, r.ownDEK())
			r.question(nil)
			r.pass(DefaultHealthyPoll)
			require.Equal(t, until, r.Health().WritesUntil)
		})
	}
	t.Run("lost", func(t *testing.T) {
		r := newRig(t)
		heir := r.heir()
		own, lost := heir.write("own"), heir.ownDEK()
		r.refuse(errNoSuchKEK, lost)
		heir.refuse(errNoSuchKEK, lost)
		r.question(nil)
		heir.settle()
		heir.pass(DefaultUnhealthyPoll)
		require.NotEqual(t, lost, heir.ownDEK())
		heir.isStale(true, own)
		heir.isStale(false, heir.write("v"))
	})
}

// What is fine becomes fresh again, however long, however often and by whomever the
// plugin was asked for it in vain.
func TestWhatIsFineIsNotStaleForEver(t *testing.T) {
	for name, inVain := range map[string]func(*rig){
		"for long": func(r *rig) { r.repeat(5*recheckTimes, func() { r.pass(DefaultHealthyPoll) }) },
		"asked each time": func(r *rig) {
			r.repeat(200, func() { r.clock.Step(1100 * time.Millisecond); r.settle(); _ = r.Ask(r.t.Context()) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			value, ciphertext := sealedBy(t, "1")
			r := newRig(t)
			r.read(value)
			for range 3 {
				r.refuse(errDenied, ciphertext)
				r.question(nil)
				inVain(r)
				r.isStale(true, value)
				r.plugin.set(func(f *faultyPlugin) { f.refusedAll, f.decErr = nil, nil })
				r.repeat(2, func() { r.pass(DefaultHealthyPoll) })
				r.isStale(false, value)
			}
		})
	}
}

func (r *rig) repeat(times int, do func()) {
	for range times {
		do()
	}
}

// What is under a former key_id ages like before, when the plugin has unwrapped it.
func TestAfterAQuestionDEKsAgeLikeBefore(t *testing.T) {
	for _, role := range []Role{Reads, Writes} {
		r := newRig(t, func(o *Options) { o.MaxDEKAge = time.Hour })
		for range 50 {
			value, _ := sealedBy(t, "0")
			r.read(value)
		}
		r.SetRole(role)
		r.settle()
		r.question(nil)
		r.repeat(80, func() { r.pass(DefaultHealthyPoll) })
		r.DropAged()
		require.Zero(t, r.cache.len())
	}
}

// A plugin that has lost what is written with is not well until there is another DEK.
func TestAPluginIsNotWellWhileADEKIsMadeInThePlaceOfALostOne(t *testing.T) {
	r, f := newFailing(t)
	r.End()
	r.Lease = lease(NewProvider(f, Options{Clock: r.clock, MaxWrites: 64}), Writes)
	t.Cleanup(r.End)
	require.NoError(t, r.Asked(t.Context()))
	used := r.ownDEK()
	r.repeat(60, func() { r.write("v") }) // the last eighth is left
	problem := Problem("not asked")
	f.refuses = func(w Wrapped) error {
		if string(w.Ciphertext) == used {
			return errNoSuchKEK
		}
		problem = r.Health().Problem
		return nil
	}
	r.pass(DefaultHealthyPoll)
	require.Equal(t, Failed, problem)
	require.Empty(t, r.Health().Problem)
	r.write("v")
}

// A sample that was refused once, and is not what the plugin is tried by any longer, is
// asked for again: nothing is called in question for it hours later.
func TestARefusalThatIsAnsweredLaterIsForgotten(t *testing.T) {
	sample, ciphertext := sealedBy(t, "1")
	other, _ := sealedBy(t, "1")
	r := newRig(t)
	r.read(sample)
	r.refuse(errGone, ciphertext)
	r.followed.Suspect("1", plugin.Troublef(Failed, "x"))
	r.clock.Step(time.Second)
	r.settle()
	r.read(other)
	r.plugin.set(func(f *faultyPlugin) { f.refusedAll, f.decErr = nil, nil })
	r.pass(DefaultUnhealthyPoll)
	r.pass(DefaultHealthyPoll)
	require.Empty(t, r.Health().Problem)
	require.Empty(t, r.unanswered.all())
	for _, e := range r.cache.entries(func(*knownDEK) bool { return true }) {
		require.False(t, r.isKept(e.dek), "it ages like others")
	}
}

// What a plugin still remembers of a lost KEK stays lost.
func TestALostDEKThatIsUnwrappedStaysLost(t *testing.T) {
	r := newRig(t)
	dek := r.writer.current()
	r.lose(r.Provider, 0)
	trouble, _ := r.unwrapAgain(t.Context(), dek)
	require.Nil(t, trouble)
	require.True(t, r.era.isLost(dek.opener))
	require.True(t, r.era.isOver(dek.opener))
}

// What a plugin that is well says it has lost, which was refused in other words before.
func TestARefusalThatIsALossLaterCallsAllInQuestion(t *testing.T) {
	value, ciphertext := sealedBy(t, "1")
	r := newRig(t)
	r.read(value)
	e := r.cache.entries(func(d *knownDEK) bool { return d != r.writer.current().opener })[0]
	source, err := stored.ParseSource(e.tail)
	require.NoError(t, err)
	r.unanswered.refused(&source, e.dek)
	r.refuse(errNoSuchKEK, ciphertext)
	r.pass(DefaultHealthyPoll)
	r.pass(DefaultHealthyPoll)
	r.isStale(true, value)
	r.isStale(false, r.write("v"))
}

// A question stops no writes.
func TestAQuestionBeforeTheRoleStopsNoWrites(t *testing.T) {
	r := newRig(t)
	heir := r.idleHeir()
	require.NoError(t, heir.Prepare(t.Context()))
	r.question(nil)
	release := heir.hold()
	heir.SetRole(Writes)
	value := heir.write("at once")
	release()
	heir.settle()
	heir.isStale(false, value)
}

// What is unanswered is kept where it can be read, whoever asks next and however old it
// is.
func TestWhatIsUnansweredIsKept(t *testing.T) {
	for name, pushOut := range map[string]func(*rig){
		"aged": func(r *rig) {
			r.pass(2 * time.Hour)
			r.DropAged()
		},
		"evicted": func(r *rig) { r.pushOut() },
	} {
		t.Run("by another timeout, "+name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.MaxDEKs, o.MaxDEKAge = 16, time.Hour })
			own, lost := r.write("own"), r.ownDEK()
			pushOut(r)
			r.refuse(errors.New("no such key"), lost)
			r.reconnect()
			heir := r.idleHeir(func(o *Options) { o.MaxDEKAge = time.Hour })
			heir.refuse(errors.New("no such key"), lost)
			require.NoError(t, heir.Prepare(t.Context()))
			heir.SetRole(Writes)
			heir.settle()
			r.End()
			for range 70 {
				heir.pass(DefaultHealthyPoll)
				heir.DropAged()
				heir.isStale(true, own)
			}
			heir.isStale(false, heir.write("v"))
		})
	}
	t.Run("a reader's", func(t *testing.T) {
		value, ciphertext := sealedBy(t, "1")
		r, _ := onlooker(t, newFaultyPlugin())
		r.opts.MaxDEKAge = time.Hour
		r.read(value)
		r.refuse(errors.New("no such key"), ciphertext)
		r.suspect()
		r.pass(2 * time.Hour)
		r.DropAged()
		r.read(value)
	})
}

// A key_id that comes and goes while nothing is written says nothing of what was refused
// under the other.
func TestARefusalOutlivesAnotherKeyID(t *testing.T) {
	for name, prepared := range map[string]bool{"prepared meanwhile": true, "only polled": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			own, lost := r.write("own"), r.ownDEK()
			r.SetRole(Reads)
			r.settle()
			r.refuse(errors.New("no such key"), lost)
			r.suspect()
			for _, keyID := range []string{"2", "1"} {
				r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = keyID })
				r.pass(DefaultHealthyPoll)
				if prepared {
					require.NoError(t, r.Prepare(t.Context()))
				}
			}
			r.SetRole(Writes)
			r.repeat(3, func() { r.pass(DefaultHealthyPoll) })
			r.isStale(true, own)
			r.isStale(false, r.write("v"))
		})
	}
}

// A plugin that gives another key for a DEK that it gave before has lost that one.
func TestAnotherKeyForASampleIsALoss(t *testing.T) {
	for _, role := range []Role{Reads, Writes} {
		value, ciphertext := sealedBy(t, "1")
		r := newRig(t)
		r.SetRole(role)
		r.settle()
		r.read(value)
		r.ofOld(ciphertext, func(f *faultyPlugin) { f.unwrapped = make([]byte, dekSize) })
		r.suspect()
		require.NotEmpty(t, r.Health().Problem)
		r.SetRole(Writes)
		r.repeat(3, func() { r.pass(DefaultUnhealthyPoll) })
		require.Empty(t, r.Health().Problem)
		r.isStale(true, value)
		r.isStale(false, r.write("v"))
	}
}

// That Status fails for long does not make a loss the matter of a value.
func TestALossThatIsSeenWhileStatusFailsIsKept(t *testing.T) {
	value, ciphertext := sealedBy(t, "1")
	r, _ := onlooker(t, newFaultyPlugin())
	r.read(value)
	r.plugin.set(func(f *faultyPlugin) { f.statusErr = status.Error(codes.Internal, "odd") })
	r.pass(DefaultHealthyPoll)
	r.pass(DefaultWriteWindow)
	r.refuse(errNoSuchKEK, ciphertext)
	r.suspect()
	require.Zero(t, r.era.lost.Load(), "the KEK may have been retired")
	r.plugin.set(func(f *faultyPlugin) { f.statusErr = nil })
	r.pass(DefaultUnhealthyPoll)
	require.NoError(t, r.Prepare(t.Context()))
	r.SetRole(Writes)
	r.settle()
	r.isStale(true, value)
	r.isStale(false, r.write("v"))
}

// A spare that a recheck was told is lost is not written with.
func TestASpareThatIsLostInARecheckIsNotWrittenWith(t *testing.T) {
	r, _ := onlooker(t, newFaultyPlugin())
	require.NoError(t, r.Prepare(t.Context()))
	spare := string(r.writer.aside().source.EncryptedDEK)
	r.refuse(errNoSuchKEK, spare)
	r.question(nil)
	r.pass(DefaultHealthyPoll)
	r.SetRole(Writes)
	if now := r.writer.current(); now != nil {
		require.NotEqual(t, spare, string(now.source.EncryptedDEK))
	}
	r.settle()
	require.NotEqual(t, spare, r.ownDEK())
	r.write("v")
}

// What was set aside is tried as another is made, also if it is by something else that
// the plugin is in trouble.
func TestWhatIsAsideIsTriedThoughSomethingElseWasRefused(t *testing.T) {
	cold, ciphertext := sealedBy(t, "1")
	r := newRig(t)
	own, lost := r.write("own"), r.ownDEK()
	r.SetRole(Reads)
	r.settle()
	r.refuse(errors.New("no such key"), ciphertext, lost)
	_, _, err := r.Open(t.Context(), cold, testKey)
	require.Error(t, err)
	r.settle()
	r.pass(4 * time.Minute)
	r.SetRole(Writes)
	r.repeat(3, func() { r.pass(DefaultHealthyPoll) })
	r.isStale(true, own)
	r.isStale(false, r.write("v"))
}

// One call that is throttled as another DEK is made, or is made ready, is no question:
// what was refused is asked for once more, and nothing takes the place of what stays.
func TestOneRefusalThatPassesIsNoQuestion(t *testing.T) {
	busy := status.Error(codes.ResourceExhausted, "slow down")
	once := func(of string) func(Wrapped) error {
		said := false
		return func(w Wrapped) error {
			if said || string(w.Ciphertext) != of {
				return nil
			}
			said = true
			return busy
		}
	}
	t.Run("the DEK is used up", func(t *testing.T) {
		r, f := newFailing(t)
		r.End()
		r.Lease = lease(NewProvider(f, Options{Clock: r.clock, MaxWrites: 8}), Writes)
		t.Cleanup(r.End)
		require.NoError(t, r.Asked(t.Context()))
		own := r.write("own")
		f.refuses = once(r.ownDEK())
		for range 8 {
			r.write("v")
		}
		require.Zero(t, r.era.now.Load())
		r.isStale(false, own)
	})
	t.Run("the window was over", func(t *testing.T) {
		r, f := newFailing(t)
		own, dek := r.write("own"), r.ownDEK()
		f.fails = func() error { return errGone }
		r.reconnect()
		for range 20 {
			r.pass(DefaultUnhealthyPoll)
		}
		f.fails, f.refuses = func() error { return nil }, once(dek)
		r.pass(DefaultUnhealthyPoll)
		require.Zero(t, r.era.now.Load())
		r.isStale(false, own, r.write("v"))
	})
	t.Run("more is to be written", func(t *testing.T) {
		r, f := newFailing(t)
		dek := r.ownDEK()
		calls := 0
		f.refuses = func(w Wrapped) error {
			if string(w.Ciphertext) == dek {
				if calls++; calls > 1 {
					return busy
				}
			}
			return nil
		}
		r.clock.Step(2 * time.Second)
		require.NoError(t, r.Prepare(t.Context()))
		require.Equal(t, dek, r.ownDEK())
		require.Zero(t, r.era.now.Load())
		require.Greater(t, calls, 1)
	})
}
