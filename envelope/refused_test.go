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
		r.pass(DefaultHealthyPoll)
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
			_, stale = r.read(sample)
			require.True(t, stale)
			_, stale = r.read(own)
			require.False(t, stale, "the plugin unwraps that one")
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
