package kmsv1

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/envelope"
)

func TestAProviderThatOnlyReadsDoesNotWrite(t *testing.T) {
	l, plugin := reader(t)
	_, err := l.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.ErrorIs(t, err, envelope.ErrWritesStopped)
	encrypts, decrypts := plugin.calls()
	require.Zero(t, encrypts+decrypts, "nobody is called before something is read")
	require.False(t, l.Health().Writes)
}

func TestTheLastHoldClosesThePlugin(t *testing.T) {
	r := newRig(t)
	payload := r.write("value")
	end := r.Hold()
	r.End()
	r.End()
	require.False(t, r.plugin.closed, "ending twice is ending once")
	require.True(t, verdictOf(r.Open(t.Context(), payload, testKey)).opened)
	_, err := r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.NoError(t, err)

	end()
	require.True(t, r.plugin.closed)
	require.True(t, verdictOf(r.Open(t.Context(), payload, testKey)).opened, "what is in flight still reads what is cached")
	_, _, err = r.Open(t.Context(), newRig(t).write("cold"), testKey)
	require.ErrorIs(t, err, envelope.ErrClosed)
	_, err = r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	require.ErrorIs(t, err, envelope.ErrClosed)
	require.ErrorIs(t, r.Prepare(t.Context()), envelope.ErrClosed)
}

func TestClosingWaitsForCallsUnderWay(t *testing.T) {
	payload := newRig(t).write("value")
	l, plugin := reader(t)
	plugin.decrypting = make(chan struct{})
	read := make(chan error)
	go func() {
		_, _, err := l.Open(t.Context(), payload, testKey)
		read <- err
	}()
	require.Eventually(t, func() bool { _, n := plugin.calls(); return n == 1 }, testWait, testTick)
	ended := make(chan struct{})
	go func() { l.End(); close(ended) }()
	require.Eventually(t, func() bool {
		begun := l.followed.Begin()
		if begun {
			l.followed.Done()
		}
		return !begun
	}, testWait, testTick)
	select {
	case <-ended:
		t.Fatal("closed under a call")
	default:
	}
	close(plugin.decrypting)
	require.NoError(t, <-read)
	<-ended
	require.True(t, plugin.closed)
}
