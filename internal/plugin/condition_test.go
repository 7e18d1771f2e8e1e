package plugin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestAConditionKnowsSinceWhen(t *testing.T) {
	away, silent := Troublef(Unreachable, "nobody"), Troublef(TimedOut, "no answer")
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }

	c := Condition{}.Next(nil, at(1))
	require.Equal(t, Condition{Since: at(1)}, c, "the first finding is new")
	require.Empty(t, c.Text())
	require.Equal(t, at(1), c.Next(nil, at(2)).Since)

	c = c.Next(away, at(3))
	require.Equal(t, Condition{Trouble: away, Since: at(3)}, c)
	c = c.Next(Troublef(Unreachable, "still nobody"), at(4))
	require.Equal(t, at(3), c.Since, "the same problem in other words")
	require.Equal(t, "still nobody", c.Text())
	require.Equal(t, at(5), c.Next(silent, at(5)).Since)
	require.Equal(t, at(6), c.Next(nil, at(6)).Since)
}

func TestProblemsOfCalls(t *testing.T) {
	for code, want := range map[codes.Code]Problem{
		codes.Unavailable: Unreachable, codes.DeadlineExceeded: TimedOut, codes.PermissionDenied: Denied,
		codes.Unauthenticated: Denied, codes.ResourceExhausted: Throttled, codes.FailedPrecondition: KeyDisabled,
		codes.Internal: Failed, codes.NotFound: Failed,
	} {
		require.Equal(t, want, ProblemOf(fmt.Errorf("wrapped: %w", status.Error(code, "x"))), code)
	}
	require.Equal(t, TimedOut, ProblemOf(context.DeadlineExceeded))
	require.Equal(t, Failed, ProblemOf(errors.New("odd")))
}
