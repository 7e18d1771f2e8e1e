package kmsv1

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/plugin"
)

// Each value has its own DEK, and a LIST reads one after the other.
func TestAListOverAPluginThatHangsWaitsForItOnce(t *testing.T) {
	const timeout = 3 * time.Second
	writer := newRig(t)
	var payloads [][]byte
	for range 100 {
		payloads = append(payloads, writer.write("value"))
	}
	r := standing(t)
	goOn := r.occupy()
	r.plugin.set(func(f *faultyPlugin) { f.decErr = status.Error(codes.DeadlineExceeded, "no answer") })
	r.plugin.takes = func() { r.clock.Step(timeout) }
	for i, payload := range payloads {
		_, _, err := r.Open(t.Context(), payload, testKey)
		require.ErrorIs(t, err, envelope.ErrUnavailable)
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		if i > 0 {
			require.ErrorIs(t, err, plugin.ErrHung)
		}
	}
	r.requireCalls(0, 1)

	// It is asked on the side, and a sign of life ends it.
	r.plugin.set(func(p *faultyPlugin) { p.decErr, p.takes = nil, nil })
	goOn()
	for _, payload := range payloads {
		require.Eventually(t, func() bool { return verdictOf(r.Open(t.Context(), payload, testKey)).opened }, testWait, testTick)
	}
}

// occupy gives the follower something to do until goOn is called, so that the
// plugin is asked by nobody else.
func (r *rig) occupy() (goOn func()) {
	begun, end := make(chan struct{}), make(chan struct{})
	go func() {
		_ = r.followed.Do(context.Background(), func(ctx context.Context) {
			close(begun)
			select {
			case <-end:
			case <-ctx.Done():
			}
		})
	}()
	<-begun
	return func() { close(end) }
}

func TestAnErrorOfThePluginIsCut(t *testing.T) {
	payload := newRig(t).write("value")
	long := status.Error(codes.Internal, strings.Repeat("long\n", 1<<18))
	r := newRig(t)
	r.plugin.set(func(p *faultyPlugin) { p.encErr, p.decErr = long, long })
	_, _, err := r.Open(t.Context(), payload, testKey)
	_, errSeal := r.Seal(t.Context(), testPrefix, []byte("value"), testKey)
	cold := standing(t)
	cold.plugin.set(func(f *faultyPlugin) { f.encErr = long })
	errPrepare := cold.Prepare(t.Context())
	require.NoError(t, r.Ask(t.Context()))
	for _, err := range []error{err, errSeal, errPrepare, r.Health().Err} {
		require.Equal(t, codes.Internal, status.Code(err))
		require.Less(t, len(err.Error()), plugin.MaxText+256)
		require.NotContains(t, err.Error(), "\n")
	}
}
