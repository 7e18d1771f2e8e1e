package kmsv1

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/envelope"
)

// A plugin that once answers with a wrong key must not cost the value for longer
// than that, also when the value happens to have a fitting padding under it.
func TestAWrongKeyUnderWhichThePaddingFitsIsNotKept(t *testing.T) {
	writer := newRig(t)
	wrong := make([]byte, dekSize)
	for range 20000 { // one in 256 fits
		payload := writer.write("0123") // 32 bytes, which may be AES-CBC
		l, plugin := reader(t)
		plugin.set(func(f *faultyPlugin) { f.unwrapped = wrong })
		_, stale, err := l.Open(t.Context(), payload, testKey)
		if err != nil {
			l.End()
			continue
		}
		require.True(t, stale)
		require.Zero(t, l.Health().CachedDEKs)
		plugin.set(func(f *faultyPlugin) { f.unwrapped = nil })
		got, stale, err := l.Open(t.Context(), payload, testKey)
		require.NoError(t, err)
		require.Equal(t, "0123", string(got))
		require.False(t, stale)
		require.Equal(t, 1, l.Health().CachedDEKs)
		return
	}
	t.Fatal("no padding fitted")
}

// A plugin that cannot unwrap what it wraps never gets a write, whatever else it
// can unwrap, and readiness says so.
func TestAPluginThatLosesWhatItWrapsGetsNoWrite(t *testing.T) {
	old := newRig(t).write("old")
	for name, spoil := range map[string]func(*faultyPlugin){
		"it refuses":             func(p *faultyPlugin) { p.wrap = func([]byte) []byte { return []byte("?") } },
		"one ciphertext for all": func(p *faultyPlugin) { p.wrap = func([]byte) []byte { return []byte("AAAA") } },
		"a part": func(p *faultyPlugin) {
			p.wrap = func(dek []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(dek[:16])) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			plugin := newFaultyPlugin()
			plugin.wrapped = nil
			spoil(plugin)
			r := newRigOn(t, plugin)
			require.True(t, verdictOf(r.Open(t.Context(), old, testKey)).opened)
			_, err := r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
			require.ErrorIs(t, err, envelope.ErrUnavailable)
			require.False(t, ready(r))
			require.Zero(t, r.Health().LastHealthy)

			plugin.set(func(p *faultyPlugin) { p.wrap = nil })
			r.pass(envelope.DefaultUnhealthyPoll)
			require.True(t, ready(r))
			r.write("value")

			plugin.set(spoil)
			r.pass(envelope.DefaultHealthyPoll)
			require.True(t, verdictOf(r.Open(t.Context(), newRig(t).write("cold"), testKey)).opened)
			before := len(plugin.given())
			_, err = r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
			require.ErrorIs(t, err, envelope.ErrWritesStopped)
			require.False(t, ready(r))
			require.LessOrEqual(t, len(plugin.given()), before+1, "no other was wrapped, but for a probe")
		})
	}
}

// One that hangs on what it wraps may be written with, as it was well before, but
// is not well by wrapping more.
func TestAWriteDoesNotEndWhatUnwrappingCameTo(t *testing.T) {
	r := newRig(t)
	r.plugin.set(func(p *faultyPlugin) { p.decErr = status.Error(codes.DeadlineExceeded, "no answer") })
	r.pass(envelope.DefaultHealthyPoll)
	require.Equal(t, envelope.TimedOut, r.Health().Problem)
	r.write("value")
	require.Equal(t, envelope.TimedOut, r.Health().Problem)
}

// A damaged value, or one that another plugin wrapped, must not stop writes: a
// LIST reads it over and over.
func TestAValueThatIsNotUnwrappedStopsNoWrite(t *testing.T) {
	r := newRig(t)
	damaged := newRig(t).write("value")
	r.plugin.damaged, _, _ = split(damaged)
	for range 100 {
		_, _, err := r.Open(t.Context(), damaged, testKey)
		require.ErrorIs(t, err, errDamaged)
		_, err = r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
		require.NoError(t, err)
	}
}
