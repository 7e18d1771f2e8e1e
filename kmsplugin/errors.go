package kmsplugin

import (
	"context"
	"errors"
	"strings"
	"unicode"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Classes of errors. A [Service] or a [Session] returns them, wrapped or as they are, so
// that whoever is at the other end of the socket knows what to do.
var (
	// ErrUnavailable: the keys are out of reach for now. codes.Unavailable.
	ErrUnavailable = errors.New("keys unavailable")
	// ErrDenied: the KMS does not let this plugin in, or not do that.
	// codes.PermissionDenied.
	ErrDenied = errors.New("denied")
	// ErrThrottled: there are more calls than the KMS takes. codes.ResourceExhausted.
	ErrThrottled = errors.New("throttled")
	// ErrKeyDisabled: the KEK is there and may not be used now. codes.FailedPrecondition.
	ErrKeyDisabled = errors.New("key disabled")
	// ErrUnknownKey: the key_id is none of this plugin's keys. Trying again does not
	// help; bringing the key back does. codes.NotFound.
	ErrUnknownKey = errors.New("unknown key_id")
	// ErrInvalid: the request can never succeed: the ciphertext is damaged, or something
	// is outside its limits. codes.InvalidArgument.
	ErrInvalid = errors.New("invalid request")
)

// ErrorDomain is that of the ErrorInfo which every error of a class carries. By it a
// client tells a plugin whose KMS is away from a plugin that is away itself.
const ErrorDomain = "kmsplugin.kube-atrest.io"

// class is how an error crosses the socket.
type class struct {
	err    error
	code   codes.Code
	reason string
}

// classes are in the order in which they are looked for: what is about one request says
// more than what is about the plugin.
var classes = []class{
	{ErrUnknownKey, codes.NotFound, "UNKNOWN_KEY"},
	{ErrInvalid, codes.InvalidArgument, "INVALID"},
	{ErrKeyDisabled, codes.FailedPrecondition, "KEY_DISABLED"},
	{ErrDenied, codes.PermissionDenied, "DENIED"},
	{ErrThrottled, codes.ResourceExhausted, "THROTTLED"},
	{ErrUnavailable, codes.Unavailable, "UNAVAILABLE"},
}

// MaxError bounds the text of an error that crosses the socket, in bytes.
const MaxError = 1024

// toGRPC gives an error the code that the comment of [Service] promises. The Service's own
// word goes before the status of some gRPC call that it made.
func toGRPC(err error) error {
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return withReason(c, err)
		}
	}
	code := status.FromContextError(err).Code()
	if s, ok := status.FromError(err); ok {
		code = s.Code()
	}
	if errors.Is(err, context.DeadlineExceeded) && code == codes.Unknown {
		code = codes.DeadlineExceeded
	}
	return status.Error(code, oneLine(err.Error()))
}

func withReason(c class, err error) error {
	s := status.New(c.code, oneLine(err.Error()))
	if with, failed := s.WithDetails(&errdetails.ErrorInfo{Reason: c.reason, Domain: ErrorDomain}); failed == nil {
		s = with
	}
	return s.Err()
}

// oneLine is text of at most [MaxError] bytes of valid UTF-8 without control characters.
func oneLine(text string) string {
	if len(text) > MaxError {
		text = text[:MaxError-3] + "..."
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
