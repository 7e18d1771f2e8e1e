package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Problem is the class of what is wrong with a plugin, for metrics and for
// choosing what to do. The empty Problem is none.
type Problem string

// The classes of [Problem].
const (
	Unreachable  Problem = "unreachable"  // nothing listens on the socket, or the connection broke
	KMSAway      Problem = "kms_away"     // the plugin answers that the KMS behind it is out of reach
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
	Closed       Problem = "closed"       // it is no longer used: nothing is read or written with it
)

// ProblemOf classes the error of a call by its gRPC code.
func ProblemOf(err error) Problem {
	if errors.Is(err, context.DeadlineExceeded) {
		return TimedOut
	}
	switch status.Code(err) {
	case codes.Unavailable:
		if reasonOf(err) != "" {
			return KMSAway
		}
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

// reasonOf is the reason of the ErrorInfo that an error carries, or empty. gRPC's own
// errors, as of a connection that broke, have none: with it the plugin itself answered.
func reasonOf(err error) string {
	s, _ := status.FromError(err)
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// OfTheValue reports whether the error of Decrypt is about what was to be
// unwrapped and not about the plugin: it has no such KEK, or did not wrap that.
func OfTheValue(err error) bool {
	code := status.Code(err)
	return code == codes.NotFound || code == codes.InvalidArgument
}

// Trouble is a problem with its cause. A nil Trouble is none. It is immutable.
type Trouble struct {
	Problem Problem
	Err     error
}

// Troublef makes a trouble, with a cause that is written like [fmt.Errorf]'s and
// cut like by [Cut].
func Troublef(p Problem, format string, args ...any) *Trouble {
	return &Trouble{Problem: p, Err: Cut(fmt.Errorf(format, args...))}
}

// TroubleOf is the trouble of a call that failed.
func TroubleOf(call string, err error) *Trouble {
	return Troublef(ProblemOf(err), "%s: %w", call, err)
}

// Cause is what is wrong; nil if t is nil.
func (t *Trouble) Cause() error {
	if t == nil {
		return nil
	}
	return t.Err
}

// class is the problem, empty when there is none.
func (t *Trouble) class() Problem {
	if t == nil {
		return ""
	}
	return t.Problem
}

// text is what is wrong, empty when nothing is.
func (t *Trouble) text() string {
	if t == nil {
		return ""
	}
	return t.Err.Error()
}

// LostContact reports whether the plugin, or the KMS behind it, was not reached or did not
// answer.
func (t *Trouble) LostContact() bool {
	return t.class() == Unreachable || t.class() == KMSAway || t.class() == TimedOut
}

// refusesStatus reports whether t is the answer of a plugin that serves no
// Status, as one does whose KEK may no longer be used to encrypt.
func (t *Trouble) refusesStatus() bool {
	code := status.Code(t.Cause())
	return code == codes.PermissionDenied || code == codes.Unimplemented
}

// MaxText bounds what is kept of the text of a plugin's error, in bytes.
const MaxText = 1 << 10

// Cut bounds the text of an error that came from a plugin to [MaxText] on one line of
// characters that can be seen. Its gRPC code stays, and that it had a reason; an error
// that needs no cut is returned as it is.
func Cut(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if len(text) <= MaxText && !strings.ContainsFunc(text, isHidden) {
		return err
	}
	code := status.Code(err)
	if errors.Is(err, context.DeadlineExceeded) {
		code = codes.DeadlineExceeded
	}
	if s, ok := status.FromError(err); ok {
		text = s.Message()
	} else if code == codes.Unknown {
		return errors.New(oneLine(text))
	}
	short := status.New(code, oneLine(text))
	if reason := reasonOf(err); reason != "" {
		if with, failed := short.WithDetails(&errdetails.ErrorInfo{Reason: fmt.Sprintf("%.64q", reason)}); failed == nil {
			short = with
		}
	}
	return short.Err()
}

// isHidden reports whether a character would not be seen as it is where a text is
// shown: a line's end, the codes of a terminal, or what turns the way of reading.
func isHidden(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }

// oneLine is text on one line, cut so that an error's own words around it still
// leave it below [MaxText].
func oneLine(text string) string {
	const most = MaxText - 256
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return strings.Map(func(r rune) rune {
		if isHidden(r) {
			return ' '
		}
		return r
	}, text)
}
