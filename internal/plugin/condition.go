package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Problem is the class of what is wrong with a plugin, for metrics and for
// choosing what to do. The empty Problem is none.
type Problem string

// The classes of [Problem].
const (
	Unreachable  Problem = "unreachable"  // nothing listens on the socket, or the connection broke
	TimedOut     Problem = "timeout"      // no answer within the configured timeout
	Denied       Problem = "denied"       // the plugin or the KMS behind it refused the caller
	Throttled    Problem = "throttled"    // too many calls
	KeyDisabled  Problem = "key_disabled" // the KEK cannot be used in its present state
	Unhealthy    Problem = "unhealthy"    // Status says so itself
	BadVersion   Problem = "version"      // the plugin speaks an unknown version of the API, or changed it
	BadKeyID     Problem = "key_id"       // Status gave an empty or oversized key_id
	BadAnswer    Problem = "answer"       // Encrypt's or Decrypt's answer cannot be used
	Disagreement Problem = "disagreement" // Encrypt used another key_id than Status names
	Failed       Problem = "error"        // any other error of a call
)

// ProblemOf classes the error of a call by its gRPC code.
func ProblemOf(err error) Problem {
	if errors.Is(err, context.DeadlineExceeded) {
		return TimedOut
	}
	switch status.Code(err) {
	case codes.Unavailable:
		return Unreachable
	case codes.DeadlineExceeded:
		return TimedOut
	case codes.PermissionDenied, codes.Unauthenticated:
		return Denied
	case codes.ResourceExhausted:
		return Throttled
	case codes.FailedPrecondition:
		return KeyDisabled
	}
	return Failed
}

// Trouble is a problem with its cause.
type Trouble struct {
	Problem Problem
	Err     error
}

// Troublef makes a trouble, with a cause that is written like [fmt.Errorf]'s.
func Troublef(p Problem, format string, args ...any) *Trouble {
	return &Trouble{Problem: p, Err: fmt.Errorf(format, args...)}
}

// Cause is what is wrong; nil if t is nil.
func (t *Trouble) Cause() error {
	if t == nil {
		return nil
	}
	return t.Err
}

// Condition is a trouble, or none, and since when it is so. It is immutable.
type Condition struct {
	*Trouble
	Since time.Time
}

// Next is the condition after t was found at now: the time of a problem that
// goes on, even with another text, is kept.
func (c Condition) Next(t *Trouble, now time.Time) Condition {
	if c.class() == (Condition{Trouble: t}).class() && !c.Since.IsZero() {
		return Condition{Trouble: t, Since: c.Since}
	}
	return Condition{Trouble: t, Since: now}
}

// class is the problem, empty when there is none.
func (c Condition) class() Problem {
	if c.Trouble == nil {
		return ""
	}
	return c.Problem
}

// Text is what is wrong, empty when nothing is.
func (c Condition) Text() string {
	if c.Trouble == nil {
		return ""
	}
	return c.Err.Error()
}

// Record notes in c that t was found at now. It is news when what is wrong is
// not what was wrong before.
func Record(c *atomic.Pointer[Condition], t *Trouble, now time.Time) (news bool) {
	before := c.Load()
	after := before.Next(t, now)
	c.Store(&after)
	return after.Text() != before.Text()
}
