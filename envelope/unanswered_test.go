package envelope

import (
	"testing"
	"time"

	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A timeout changes before anybody has seen that the KEK is lost: what the former provider
// wrote with is asked for once by the next.
func TestALossThatNobodyHasSeenIsFoundAfterAnotherTimeout(t *testing.T) {
	for name, prepared := range map[string]bool{"prepared": true, "not prepared": false} {
		for role, before := range map[string]Role{"writes": Writes, "no longer writes": Reads, "is idle": Idle} {
			t.Run(name+", the former "+role, func(t *testing.T) {
				r := newRig(t)
				own, lost := r.write("own"), r.ownDEK()
				r.refuse(errNoSuchKEK, lost)
				heir := r.idleHeir()
				heir.refuse(errNoSuchKEK, lost)
				if prepared {
					require.NoError(t, heir.Prepare(t.Context()))
				}
				heir.SetRole(Writes)
				heir.settle()
				r.SetRole(before)
				r.End()
				heir.pass(DefaultHealthyPoll)
				heir.isStale(true, own)
				heir.isStale(false, heir.write("v"))
				_, _, calls := heir.plugin.calls()
				heir.repeat(9, func() { heir.pass(DefaultHealthyPoll) })
				_, _, after := heir.plugin.calls()
				require.LessOrEqual(t, after-calls, 1, "it is answered; a trial of the DEK in use may be due")
			})
		}
	}
}

// What was refused for long heals as fast as a plugin unwraps it.
func TestManyThatWereRefusedForLongHealAtOnce(t *testing.T) {
	r := newRig(t)
	values, ciphertexts := make([][]byte, 60), make([]string, 60)
	for i := range values {
		values[i], ciphertexts[i] = sealedBy(t, "1")
		r.read(values[i])
	}
	r.refuse(errDenied, ciphertexts...)
	r.question(nil)
	r.repeat(60, func() { r.pass(DefaultHealthyPoll) })
	r.isStale(true, values...)
	r.plugin.set(func(f *faultyPlugin) { f.decErr, f.refusedAll = nil, nil })
	r.pass(DefaultHealthyPoll)
	r.isStale(false, values...)
}

// What is tried ahead of a role, and one refusal before another timeout, call nothing in
// question.
func TestWhatTakesNoPlaceRaisesNoQuestion(t *testing.T) {
	for name, act := range map[string]func(r, heir *rig){
		"a candidate that gets no role": func(r, heir *rig) {
			require.NoError(r.t, heir.Prepare(r.t.Context()))
			heir.End()
		},
		"another timeout": func(r, heir *rig) {
			require.NoError(r.t, heir.Prepare(r.t.Context()))
			heir.SetRole(Writes)
			heir.settle()
			r.End()
			heir.settle()
		},
	} {
		t.Run(name, func(t *testing.T) {
			other, _ := sealedBy(t, "1")
			r := newRig(t)
			own := r.write("own")
			r.read(other)
			r.refuse(status.Error(codes.ResourceExhausted, "slow down"), r.ownDEK())
			r.reconnect()
			require.NotEmpty(t, r.Health().Problem)
			act(r, r.idleHeir())
			require.Zero(t, r.era.now.Load())
			_, stale := r.read(other)
			require.False(t, stale)
			r.read(own)
		})
	}
}

// A plugin that is asked for the DEK in use beside its trial, and says that it has lost
// it, is not written with under it.
func TestADEKInUseThatIsSaidToBeLostIsNotWrittenWith(t *testing.T) {
	r := newRig(t)
	own, lost := r.write("own"), r.ownDEK()
	dek := r.writer.current()
	r.keepUnanswered(&dek.source, dek.opener)
	r.refuse(errNoSuchKEK, lost)
	r.pass(DefaultHealthyPoll)
	r.pass(DefaultUnhealthyPoll)
	require.NotEqual(t, lost, r.ownDEK())
	r.isStale(true, own)
	r.isStale(false, r.write("v"))
}

// A DEK that was set aside, and is said to be lost while nobody knows the key_id, is kept
// until that is known.
func TestALossOfWhatIsAsideIsKeptWhileStatusFails(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxDEKAge = time.Hour })
	own, lost := r.write("own"), r.ownDEK()
	r.SetRole(Reads)
	r.settle()
	r.plugin.set(func(f *faultyPlugin) { f.statusErr = status.Error(codes.Internal, "odd") })
	r.pass(DefaultHealthyPoll)
	r.pass(DefaultWriteWindow)
	r.refuse(errNoSuchKEK, lost)
	r.suspect()
	require.Zero(t, r.era.lost.Load())
	r.pass(2 * time.Hour)
	r.DropAged()
	r.read(own)
	r.plugin.set(func(f *faultyPlugin) { f.statusErr = nil })
	r.pass(DefaultUnhealthyPoll)
	r.SetRole(Writes)
	r.repeat(3, func() { r.pass(DefaultHealthyPoll) })
	r.isStale(true, own)
	r.isStale(false, r.write("v"))
}

// What was looked ahead for and has opened nothing yet is kept like the rest.
func TestWhatHasOpenedNothingIsKeptWhenItIsRefused(t *testing.T) {
	value, ciphertext := sealedBy(t, "1")
	r, _ := onlooker(t, newFaultyPlugin())
	r.opts.MaxDEKAge = time.Hour
	require.NoError(t, r.Warm(value)(t.Context()))
	r.refuse(errDenied, ciphertext)
	r.suspect()
	r.pass(2 * time.Hour)
	r.DropAged()
	r.read(value)
}

// What is unanswered is bounded: each stands for all.
func TestWhatIsUnansweredIsBounded(t *testing.T) {
	var u unanswered
	of := func(name, keyID string) *stored.DEKSource {
		return &stored.DEKSource{KeyID: keyID, EncryptedDEK: []byte(name)}
	}
	present := of("present", "2")
	for i := range 2 * maxUnanswered {
		u.refused(of(string(rune('a'+i)), "1"), nil)
	}
	require.Len(t, u.all(), maxUnanswered)
	dek := &knownDEK{}
	u.refused(present, dek)
	require.Len(t, u.all(), maxUnanswered)
	require.Contains(t, u.all(), refusal{source: present, dek: dek}, "what nothing is asked of makes room")
	require.True(t, dek.unanswered.Load())
	u.refused(present, &knownDEK{})
	require.False(t, dek.unanswered.Load(), "another takes its place")
	require.False(t, u.again(present, testStart, time.Second))
	require.False(t, u.again(present, testStart, time.Second), "a moment is no poll")
	require.True(t, u.again(present, testStart.Add(time.Second), time.Second))
	require.False(t, u.again(of("nobody's", "2"), testStart, 0))
	u.unwrapped(present)
	u.unwrapped(present)
	require.Len(t, u.all(), maxUnanswered-1)
	u.clear()
	require.Empty(t, u.all())
}

// The DEK that a provider wrote with has left the cache by its age, and another provider
// reads a value under it before the first is closed: that is the one which is kept.
func TestWhatIsUnansweredIsTheOneThatIsReadWith(t *testing.T) {
	for name, words := range map[string]error{"lost": errNoSuchKEK, "in other words": errDenied} {
		t.Run(name, func(t *testing.T) {
			aged := func(o *Options) { o.MaxDEKAge = time.Hour }
			r := newRig(t, aged)
			own, lost := r.write("own"), r.ownDEK()
			r.repeat(70, func() { r.pass(DefaultHealthyPoll); r.DropAged() })
			heir := r.idleHeir(aged)
			require.NoError(t, heir.Prepare(t.Context()))
			heir.SetRole(Writes)
			heir.settle()
			r.SetRole(Idle)
			r.DropAged()
			heir.read(own)
			r.End()
			heir.plugin.die()
			heir.repeat(70, func() { heir.pass(DefaultHealthyPoll); heir.DropAged(); heir.read(own) })
			heir.plugin.live()
			heir.refuse(words, lost)
			heir.repeat(5, func() { heir.pass(DefaultHealthyPoll); heir.DropAged() })
			heir.isStale(true, own)
			heir.isStale(false, heir.write("v"))
		})
	}
}

// That a plugin has no KEK of a former key_id is no word on that key_id when it comes back.
func TestWhatWasUnknownUnderAnotherKeyIDIsAskedForAgain(t *testing.T) {
	value, ciphertext := sealedBy(t, "1")
	r := newRig(t)
	r.read(value)
	own, lost := r.write("own"), r.ownDEK()
	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "2" })
	r.pass(DefaultHealthyPoll)
	r.refuse(errNoSuchKEK, ciphertext, lost)
	r.question(nil)
	r.pass(DefaultHealthyPoll)
	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID, f.decErr, f.refusedAll = "1", nil, nil })
	r.repeat(3, func() { r.pass(DefaultHealthyPoll) })
	r.isStale(false, value, own, r.write("v"))
}
