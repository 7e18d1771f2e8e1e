package envelope

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// inOtherWords are refusals that may be an outage, or a KEK that is lost.
var inOtherWords = map[string]error{
	"no code":   errors.New("no such key"),
	"away":      errGone,
	"no answer": status.Error(codes.DeadlineExceeded, "no answer"),
	"too busy":  status.Error(codes.ResourceExhausted, "slow down"),
	"denied":    errDenied,
	"disabled":  status.Error(codes.FailedPrecondition, "disabled"),
}

// isStale requires that a value is stale, or that it is not.
func (r *rig) isStale(want bool, values ...[]byte) {
	r.t.Helper()
	for _, v := range values {
		_, stale := r.read(v)
		require.Equal(r.t, want, stale)
	}
}

// refuse has the plugin refuse some for good, and no other.
func (r *rig) refuse(words error, ciphertexts ...string) {
	r.plugin.set(func(f *faultyPlugin) { f.decErr, f.refused, f.refusedAll = words, nil, ciphertexts })
}

// What a plugin does not unwrap until the window is over, while it unwraps what it
// wraps anew, is in question, in whatever words: it is stale until the plugin unwraps
// it again, and nothing else stays so.
func TestWhatIsRefusedForLongIsStaleUntilItIsUnwrappedAgain(t *testing.T) {
	for name, words := range inOtherWords {
		t.Run(name, func(t *testing.T) {
			other, _ := sealedBy(t, "1")
			refused, ciphertext := sealedBy(t, "1")
			r := newRig(t)
			own := r.write("own")
			r.read(other)
			r.read(refused)
			r.refuse(words, r.ownDEK(), ciphertext)
			r.reconnect()
			for range 22 {
				r.pass(DefaultUnhealthyPoll)
			}
			require.Empty(t, r.Health().Problem)
			fresh := r.write("fresh")
			for range 3 * recheckTimes {
				r.pass(DefaultHealthyPoll)
				r.isStale(true, own, refused)
				r.isStale(false, other, fresh, r.write("v"))
			}
			_, _, before := r.plugin.calls()
			for range 9 {
				r.pass(DefaultHealthyPoll)
			}
			_, _, after := r.plugin.calls()
			require.LessOrEqual(t, after-before, 9+1, "one a poll; and a trial of the DEK in use may be due")
		})
	}
}

// An outage that ends between two calls of one question is no loss: the next poll says
// so.
func TestAnOutageTakenForALossIsSetRight(t *testing.T) {
	for name, words := range inOtherWords {
		t.Run(name, func(t *testing.T) {
			other, _ := sealedBy(t, "1")
			r, f := newFailing(t)
			own := r.write("own")
			r.read(other)
			f.fails = func() error { return words }
			r.reconnect()
			for range 20 {
				r.pass(DefaultUnhealthyPoll)
			}
			r.writeFails()
			calls := 0
			f.fails = func() error {
				if calls++; calls == 1 {
					return words
				}
				return nil
			}
			r.pass(DefaultUnhealthyPoll)
			r.isStale(false, own, other, r.write("again"))
		})
	}
}

// The question stays, whoever of those that share the memory takes the place of what
// was refused, and however.
func TestARefusalIsNotForgotten(t *testing.T) {
	for name, replace := range map[string]func(r *rig) *rig{
		"by another timeout": func(r *rig) *rig {
			heir := r.idleHeir()
			heir.refuse(errors.New("no such key"), r.ownDEK())
			heir.SetRole(Writes)
			heir.settle()
			r.End()
			return heir
		},
		"by making ready, as the window is over": func(r *rig) *rig {
			r.SetRole(Reads)
			r.clock.Step(2 * DefaultHealthyPoll)
			for range 3 {
				r.clock.Step(2 * DefaultHealthyPoll)
				_ = r.Prepare(r.t.Context())
			}
			r.SetRole(Writes)
			return r
		},
		"by another key_id and back": func(r *rig) *rig {
			for _, keyID := range []string{"2", "1"} {
				r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = keyID })
				r.pass(DefaultHealthyPoll)
			}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			own := r.write("own")
			r.refuse(errors.New("no such key"), r.ownDEK())
			r.reconnect()
			require.NotEmpty(t, r.Health().Problem)
			lost := r.ownDEK()
			now := replace(r)
			now.refuse(errors.New("no such key"), lost)
			for range 3 {
				now.pass(DefaultHealthyPoll)
			}
			now.isStale(true, own)
			now.isStale(false, now.write("v"))
		})
	}
}

// A reader that is tried by what it read, and then writes.
func TestAReadersRefusalIsKeptForWhenItWrites(t *testing.T) {
	value, ciphertext := sealedBy(t, "1")
	r, _ := onlooker(t, newFaultyPlugin())
	r.read(value)
	r.refuse(errors.New("no such key"), ciphertext)
	r.suspect()
	require.NotEmpty(t, r.Health().Problem)
	require.NoError(t, r.Prepare(t.Context()))
	r.SetRole(Writes)
	r.repeat(3, func() { r.pass(DefaultHealthyPoll) })
	r.isStale(true, value)
	r.isStale(false, r.write("v"))
}

// A DEK that is used up is tried once more as another takes its place. What does not
// answer then is asked again.
func TestAUsedUpDEKThatIsNotAnsweredForStaysInQuestion(t *testing.T) {
	r, f := newFailing(t)
	r.End()
	r.Lease = lease(NewProvider(f, Options{Clock: r.clock, MaxWrites: 8}), Writes)
	t.Cleanup(r.End)
	require.NoError(t, r.Asked(t.Context()))
	own, used := r.write("own"), r.ownDEK()
	away := true
	f.refuses = func(w Wrapped) error {
		if string(w.Ciphertext) == used && away {
			return errGone
		}
		return nil
	}
	for range 8 {
		r.write("v")
	}
	require.NotEqual(t, used, r.ownDEK())
	r.repeat(3, func() { r.pass(DefaultHealthyPoll) })
	r.isStale(true, own)
	r.isStale(false, r.write("v"))
	away = false
	r.pass(DefaultHealthyPoll)
	r.isStale(false, own)
}

// What is asked for again in vain is bounded, and so is the time for it. What is under
// the present key_id comes first.
func TestARecheckIsBounded(t *testing.T) {
	slow := func(r *rig) error { r.clock.Step(recheckTime / 4); return nil }
	for name, c := range map[string]struct {
		answer func(*rig) error
		calls  int
	}{
		"refused": {func(*rig) error { return errDenied }, recheckAtOnce},
		"slow":    {slow, 5},
		"well":    {func(*rig) error { return nil }, 3 * recheckAtOnce},
	} {
		t.Run(name, func(t *testing.T) {
			r, f := newFailing(t)
			for range 3 * recheckAtOnce {
				value, _ := sealedBy(t, "1")
				r.read(value)
			}
			own := r.ownDEK()
			calls := 0
			f.refuses = func(w Wrapped) error {
				if string(w.Ciphertext) == own {
					return nil // it is tried before
				}
				calls++
				return c.answer(r)
			}
			r.question(nil)
			r.settle()
			require.LessOrEqual(t, calls, c.calls)
			require.NotZero(t, calls)
		})
	}
	t.Run("what is under a former key_id", func(t *testing.T) {
		r, f := newFailing(t)
		for range 3 * recheckAtOnce {
			former, _ := sealedBy(t, "0")
			r.read(former)
		}
		value, _ := sealedBy(t, "1")
		r.read(value)
		f.refuses = func(w Wrapped) error {
			if w.KeyID == "0" {
				r.clock.Step(recheckTime)
				return errGone
			}
			return nil
		}
		r.question(nil)
		r.pass(DefaultHealthyPoll)
		r.isStale(false, value, r.write("v"))
	})
}

// A loss that is found meanwhile is one, whatever was in question.
func TestALossOfWhatIsInQuestionIsFound(t *testing.T) {
	other, _ := sealedBy(t, "1")
	r := newRig(t)
	own := r.write("own")
	r.read(other)
	r.loseKEK()
	r.question(nil)
	r.reconnect()
	r.plugin.live()
	for range 10 {
		r.pass(DefaultUnhealthyPoll)
	}
	r.isStale(true, own, other)
	r.isStale(false, r.write("v"))
}
