package kmsplugin

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An Observer is told what happens, by a [Keeper] that has it in its [Config] and by a [Server]
// that has it by [WithObserver]. Its functions are called from many goroutines, outside of all
// locks, and have to return at once. One that is nil is not called, and costs nothing.
type Observer struct {
	// Called: a call of the back end was answered, or given up. Its Operation is "open",
	// "versions", "wrap", "unwrap", "destroy" or "close".
	Called func(Call)
	// Answered: a call of a client was answered. Its Operation is "Status", "Encrypt" or
	// "Decrypt".
	Answered func(Call)
	// Looked: the back end was looked at.
	Looked func(Look)
	// Opened: a session was opened, and is the one that is called from now on.
	Opened func(Reason)
	// Refused: a client was turned away, as more of them are connected than may be.
	Refused func()
}

// Call is one that has an answer.
type Call struct {
	Operation string
	// Code is the class of its error: the gRPC code that an apiserver would see.
	Code codes.Code
	Took time.Duration
}

// Look is what a look at the back end has found.
type Look struct {
	At time.Time
	// Code is codes.OK if a version is announced and the last test DEK came back as it was.
	Code codes.Code
	// KeyID is the one that is announced, or was before something went wrong; empty if none
	// ever was. Announced is true if it was another one before this look.
	KeyID     string
	Announced bool
	// Versions is how many unwrap. Gone are those that did before this look, and do no more: a
	// look that did not see all of them tells of none.
	Versions int
	Gone     []Version
}

// A Reason is why a session was opened.
type Reason string

// Reasons to open a session.
const (
	AtStart          Reason = "start"       // there was none
	AfterCredentials Reason = "credentials" // a file of [Config.Credentials] changed
	AfterEnd         Reason = "ended"       // the last one was over
)

// began is when a call begins, if somebody wants to know.
func (k *Keeper) began() (now time.Time) {
	if k.config.Observer.Called != nil {
		now = k.config.Clock.Now()
	}
	return now
}

// called tells of a call that ends.
func (k *Keeper) called(operation string, began time.Time, err error) {
	if k.config.Observer.Called != nil && !errors.Is(err, errClosed) {
		k.config.Observer.Called(Call{operation, CodeOf(err), k.config.Clock.Since(began)})
	}
}

// CodeOf is the class of an error as the gRPC code with which it crosses the socket.
func CodeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	return status.Code(toGRPC(err))
}
