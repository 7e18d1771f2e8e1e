package plugin

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// decrypting is a call for a DEK that is never found and that takes a time.
func decrypting(r *rig, calls *atomic.Int64, took time.Duration, err error) Call[string] {
	return Call[string]{
		ID: "x", KeyID: "1", Find: func() (string, bool) { return "", false },
		Decrypt: func(context.Context) (string, *Trouble, error) {
			calls.Add(1)
			r.clock.Step(took)
			if err != nil {
				return "", TroubleOf("decrypt", err), err
			}
			return "dek", nil, nil
		},
	}
}

func TestAPluginThatHangsIsWaitedForOnce(t *testing.T) {
	r := newRig(t)
	var u Unwrapper[string]
	var calls atomic.Int64
	hangs := decrypting(r, &calls, 3*time.Second, status.Error(codes.DeadlineExceeded, "3 s are over"))
	_, err := u.Unwrap(t.Context(), r.Followed, hangs)
	require.ErrorIs(t, err, ErrUnavailable)
	require.NotErrorIs(t, err, ErrHung)
	for range 100 {
		hangs.ID += "x" // whichever DEK it is
		_, err = u.Unwrap(t.Context(), r.Followed, hangs)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, ErrHung)
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
	}
	require.EqualValues(t, 1, calls.Load())

	r.clock.Step(3*time.Second - 1)
	_, err = u.Unwrap(t.Context(), r.Followed, hangs)
	require.ErrorIs(t, err, ErrHung)
	r.clock.Step(1)
	_, err = u.Unwrap(t.Context(), r.Followed, hangs)
	require.NotErrorIs(t, err, ErrHung, "no longer than it took")
	require.EqualValues(t, 2, calls.Load())

	r.Learn(func(k Known) Known { return k.Answered(nil, r.clock.Now()) })
	got, err := u.Unwrap(t.Context(), r.Followed, decrypting(r, &calls, 0, nil))
	require.NoError(t, err)
	require.Equal(t, "dek", got)
}

func TestOtherFailuresAreNotRemembered(t *testing.T) {
	for _, code := range []codes.Code{codes.Unavailable, codes.PermissionDenied, codes.Internal, codes.NotFound} {
		r := newRig(t)
		var u Unwrapper[string]
		var calls atomic.Int64
		fails := decrypting(r, &calls, time.Second, status.Error(code, "x"))
		for range 3 {
			_, err := u.Unwrap(t.Context(), r.Followed, fails)
			require.Equal(t, code, status.Code(err))
		}
		require.EqualValues(t, 3, calls.Load())
	}
}

func TestWhatAFailureMeans(t *testing.T) {
	for err, want := range map[error]error{
		status.Error(codes.NotFound, "x"):         ErrUnknownKEK,
		status.Error(codes.PermissionDenied, "x"): ErrUnavailable,
		status.Error(codes.InvalidArgument, "x"):  ErrForeignDEK,
		ErrNoKey:                                  ErrUnavailable,
		ErrClosed:                                 ErrClosed,
	} {
		r := newRig(t)
		var u Unwrapper[string]
		_, got := u.Unwrap(t.Context(), r.Followed, decrypting(r, &atomic.Int64{}, 0, err))
		require.ErrorIs(t, got, want)
		require.ErrorIs(t, got, err)
	}
}

func TestWhatIsLearnedOfADecrypt(t *testing.T) {
	r := newRig(t)
	var u Unwrapper[string]
	var calls atomic.Int64
	for _, code := range []codes.Code{codes.NotFound, codes.InvalidArgument} {
		_, err := u.Unwrap(t.Context(), r.Followed, decrypting(r, &calls, 0, status.Error(code, "x")))
		require.Error(t, err)
		require.NotNil(t, r.Load().Doubt, "its own KEK should be known to it")
		r.Learn(func(k Known) Known { k.Doubt, k.KeyID = nil, "2"; return k })
		_, err = u.Unwrap(t.Context(), r.Followed, decrypting(r, &calls, 0, status.Error(code, "x")))
		require.Error(t, err)
		require.Nil(t, r.Load().Doubt, "it is about the value")
		r.Learn(func(k Known) Known { k.KeyID = ""; return k })
	}
	_, _ = u.Unwrap(t.Context(), r.Followed, decrypting(r, &calls, 0, status.Error(codes.PermissionDenied, "x")))
	require.Equal(t, Denied, r.Load().Doubt.Problem)
	require.Zero(t, r.Load().Decrypt, "one value says nothing of the plugin")
	_, err := u.Unwrap(t.Context(), r.Followed, decrypting(r, &calls, 0, nil))
	require.NoError(t, err)
	require.Equal(t, r.clock.Now(), r.Load().Decrypt.WellAt)
}

func TestAClosedPluginUnwrapsNothing(t *testing.T) {
	r := newRig(t)
	r.release()
	var u Unwrapper[string]
	var calls atomic.Int64
	_, err := u.Unwrap(t.Context(), r.Followed, decrypting(r, &calls, 0, nil))
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, calls.Load())
}

func TestWhoeverGivesUpDoesNotEndTheCall(t *testing.T) {
	r := newRig(t)
	var u Unwrapper[string]
	began, answer := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	slow := Call[string]{ID: "x", Find: func() (string, bool) { return "", false },
		Decrypt: func(ctx context.Context) (string, *Trouble, error) {
			begin()
			<-answer
			return "dek", nil, ctx.Err()
		}}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() { _, err := u.Unwrap(ctx, r.Followed, slow); gone <- err }()
	<-began
	cancel()
	err := <-gone
	require.True(t, errors.Is(err, ErrUnavailable) && errors.Is(err, context.Canceled), "%v", err)
	got := make(chan string)
	go func() { dek, _ := u.Unwrap(t.Context(), r.Followed, slow); got <- dek }()
	close(answer)
	require.Equal(t, "dek", <-got)
}
