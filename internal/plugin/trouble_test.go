package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestProblemsOfCalls(t *testing.T) {
	for code, want := range map[codes.Code]Problem{
		codes.Unavailable: Unreachable, codes.DeadlineExceeded: TimedOut, codes.PermissionDenied: Denied,
		codes.Unauthenticated: Denied, codes.ResourceExhausted: Throttled, codes.FailedPrecondition: KeyDisabled,
		codes.Internal: Failed, codes.NotFound: Failed,
	} {
		require.Equal(t, want, ProblemOf(fmt.Errorf("wrapped: %w", status.Error(code, "x"))), code)
	}
	require.Equal(t, TimedOut, ProblemOf(context.DeadlineExceeded))
	require.Equal(t, KMSAway, ProblemOf(fmt.Errorf("wrapped: %w", withReason("x"))), "the plugin itself answered")
	require.Equal(t, Failed, ProblemOf(errors.New("odd")))
}

func TestTheTextOfAPluginsErrorIsBounded(t *testing.T) {
	long := strings.Repeat("ä", 2<<20)
	for _, err := range []error{
		status.Error(codes.PermissionDenied, long),
		fmt.Errorf("version: %w", status.Error(codes.PermissionDenied, long)),
		withReason(long),
		errors.New(long),
		fmt.Errorf("%s: %w", long, context.DeadlineExceeded),
		status.Error(codes.PermissionDenied, "two\nlines\r\n"),
		errors.New("red \x1b[31m, and \u202e backwards\n"),
	} {
		got := Cut(err)
		require.LessOrEqual(t, len(got.Error()), MaxText)
		require.True(t, utf8.ValidString(got.Error()))
		require.False(t, strings.ContainsAny(got.Error(), "\n\r\x1b\u202e"))
		require.Equal(t, ProblemOf(err), ProblemOf(got))
		for e := got; e != nil; e = errors.Unwrap(e) {
			require.LessOrEqual(t, len(e.Error()), MaxText, "nothing longer is kept behind it")
		}
	}
	short := status.Error(codes.PermissionDenied, "no")
	require.Same(t, short, Cut(short))
	require.NoError(t, Cut(nil))
}

func withReason(text string) error {
	s, _ := status.New(codes.Unavailable, text).WithDetails(&errdetails.ErrorInfo{Reason: "UNAVAILABLE"})
	return s.Err()
}
