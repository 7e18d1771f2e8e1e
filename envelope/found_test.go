package envelope

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/internal/plugin"
)

var errDenied = status.Error(codes.PermissionDenied, "may not decrypt")

// A plugin that could not decrypt what it wraps while it was to be written with,
// and then is only read with and mended, is well again by a poll.
func TestAReaderThatOnceCouldNotProveIsWellAgain(t *testing.T) {
	f := newFaultyPlugin()
	f.decErr = errDenied
	r := newRigOn(t, f)
	require.Equal(t, Denied, r.Health().Problem)
	r.SetRole(Reads)
	f.set(func(f *faultyPlugin) { f.decErr = nil })
	for range 20 {
		r.pass(time.Minute)
	}
	h := r.Health()
	require.Empty(t, h.Problem, "the plugin decrypts since 20 minutes and 20 polls: %v", h.Err)
}

// sealedBy is a payload of another process, and what is wrapped in it.
func sealedBy(t *testing.T, keyID string) (payload []byte, ciphertext string) {
	f := newFaultyPlugin()
	f.status.KeyID = keyID
	w := newRigOn(t, f)
	p := w.write("value")
	_, _, out := 0, 0, p
	return out, string(w.writer.now.Load().dek.source.EncryptedDEK)
}

// What Decrypt failed on is tried again, and not something else that never tells.
// The same for a plugin that refuses Status: it is degraded until Decrypt has succeeded.
// An outage that has counted does not become health for two seconds because it has
// another face, as when somebody stops a plugin that hangs.
func TestStoppingAPluginThatHangsDoesNotMakeItHealthy(t *testing.T) {
	var told []Problem
	f := newFaultyPlugin()
	r := newRigOn(t, f, func(o *Options) { o.Observer = &toldObserver{told: &told} })
	f.set(func(f *faultyPlugin) { f.statusErr = status.Error(codes.DeadlineExceeded, "hangs") })
	r.pass(time.Minute)
	require.Equal(t, TimedOut, r.Health().Problem)
	r.pass(10 * time.Second)
	f.die()
	r.settle()
	r.clock.Step(10 * time.Second)
	r.settle()
	h := r.Health()
	require.NotEmpty(t, h.Problem, "it was not well for 20 s and is now gone")
	require.NotContains(t, told, Problem(""))
}

type toldObserver struct {
	silent
	told *[]Problem
}

func (o *toldObserver) Changed(h Health) { *o.told = append(*o.told, h.Problem) }

// 15: 1 KiB wherever it is kept or shown.
func TestHealthzTextIsBounded(t *testing.T) {
	f := newFaultyPlugin()
	f.status.Healthz = strings.Repeat("\U000E0001", 5000)
	r := newRigOn(t, f)
	require.LessOrEqual(t, len(r.Health().Err.Error()), plugin.MaxText)
}

func TestVersionTextIsBounded(t *testing.T) {
	f := newFaultyPlugin()
	f.status.Version = strings.Repeat("\U000E0001", 5000)
	r := newRigOn(t, f)
	require.LessOrEqual(t, len(r.Health().Err.Error()), plugin.MaxText)
}

func TestAnnotationTextIsBounded(t *testing.T) {
	f := newFaultyPlugin()
	f.annotations = map[string][]byte{strings.Repeat("\U000E0001", 5000): []byte("x")}
	r := newRigOn(t, f)
	require.LessOrEqual(t, len(r.Health().Err.Error()), plugin.MaxText)
}

// What is written with is what was used last: it is not the one to go.
func TestTheWriteDEKIsTheLastUsed(t *testing.T) {
	others := make([][]byte, 2)
	for i := range others {
		others[i], _ = sealedBy(t, "1")
	}
	r := newRig(t, func(o *Options) { o.MaxDEKs = 2 })
	mine := r.write("mine")
	for _, o := range others {
		r.read(o)
		for range 3 {
			r.read(mine) // used all the time
			r.write("more")
		}
	}
	// the plugin's key is rotated, then it goes away
	r.plugin.set(func(f *faultyPlugin) { f.status.KeyID = "2" })
	r.pass(time.Minute)
	r.read(r.write("new"))
	r.plugin.die()
	_, _, err := r.Open(t.Context(), mine, testKey)
	require.NoError(t, err, "two DEKs are kept, and this was used last but one")
}

// A provider that no longer writes still has what it wrote.
func TestTheFormerWriterReadsWhatItWrote(t *testing.T) {
	others := make([][]byte, 2)
	for i := range others {
		others[i], _ = sealedBy(t, "1")
	}
	r := newRig(t, func(o *Options) { o.MaxDEKs = 2 })
	mine := r.write("mine")
	for _, o := range others {
		r.read(o)
		r.read(mine)
	}
	r.plugin.die()
	_, _, err := r.Open(t.Context(), mine, testKey)
	require.NoError(t, err)
	r.SetRole(Reads)
	_, _, err = r.Open(t.Context(), mine, testKey)
	require.NoError(t, err, "read a moment ago")
}

// 14: no read is lost, by one who is told every few seconds.
func TestNoReadIsLostWhenAKeyIDComesBack(t *testing.T) {
	payload, _ := sealedBy(t, "old")
	r := newRig(t, func(o *Options) { o.MaxDEKAge = time.Minute })
	told := map[string]Use{}
	var counted uint64
	tend := func() { // as config.observer.used
		r.DropAged()
		now := r.Usage()
		for k, u := range now {
			if k == "old" {
				counted += u.Since(told[k]).Reads
			}
		}
		told = now
	}
	var read uint64
	for range 5 {
		r.read(payload)
		read++
	}
	tend()
	r.clock.Step(2 * time.Minute)
	tend() // drops the DEK
	p := r.Provider
	require.Eventually(t, func() bool {
		runtime.GC()
		p.usage.mu.Lock()
		defer p.usage.mu.Unlock()
		return p.usage.byKeyID["old"].live.Value() == nil
	}, 5*time.Second, time.Millisecond)
	tend() // lists it once more and forgets it
	for range 8 {
		r.read(payload) // met again within the same few seconds
		read++
	}
	tend()
	require.Equal(t, read, counted)
}

// Staleness: what Status has not named for the write window is not known, also
// between two polls.
func TestStaleWhenNotKnownBetweenPolls(t *testing.T) {
	payload, _ := sealedBy(t, "1")
	f := newFaultyPlugin()
	f.encErr = errDenied // no DEK, but Status names "1"
	r := newRigOn(t, f, func(o *Options) { o.UnhealthyPoll = 170 * time.Second })
	_, stale := r.read(payload)
	require.False(t, stale)
	f.set(func(f *faultyPlugin) { f.statusErr = status.Error(codes.DeadlineExceeded, "hangs") })
	r.pass(170 * time.Second)
	r.pass(60 * time.Second)
	_, stale = r.read(payload)
	require.True(t, stale, "Status named a key_id 230 s ago")
}

// 2: with a plugin that is gone no resource more is written.
func TestPrepareOfAWriterWhosePluginIsGone(t *testing.T) {
	r := newRig(t)
	r.clock.Step(5 * time.Second)
	r.plugin.die()
	require.Error(t, r.Prepare(t.Context()), "Status answered Unavailable just now")
}

// A provider that is tried again and again keeps its candidate.
func TestADisagreementCostsNoEncryptAtEachTry(t *testing.T) {
	f := newFaultyPlugin()
	f.encryptKeyID = "2"
	p := NewProvider(f, Options{})
	defer p.Hold()()
	for range 100 {
		require.Error(t, p.Prepare(t.Context()))
	}
	_, encrypts, _ := f.calls()
	t.Log("encrypts", encrypts)
	require.LessOrEqual(t, encrypts, 5)
}

// A spare that was set aside survives a poll in which something is wrong.
// 9: about one timeout.
var _ = errors.New
var _ = fmt.Sprint

// 1: an update that changes nothing does not succeed with the object left under the
// old key_id. The store writes again what is stale, and reports success.
// A reader that was never asked is not known to be well.
