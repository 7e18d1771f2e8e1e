package reload

import (
	"errors"
	"time"
)

// Status is what a [Controller] knows at one moment: a value, not to be
// changed. It holds no content, but LastError has what Build put into it.
type Status struct {
	// Hash is that of the content in use (see [Hash]), taken into use at
	// LoadedAt. For the first one that is when the controller was made.
	Hash     string
	LoadedAt time.Time
	// LastAttempt is when a content was last built, with or without success;
	// zero if none was yet.
	LastAttempt time.Time
	// Building is the content that is being built, empty for none. What is in
	// use stays in use meanwhile.
	Building string
	// LastError is why the file is not in use, as it was found last; nil while
	// it is. FailedHash is the content that could not be built, empty if the
	// file could not be read, and FailedSince is when that was found first,
	// whatever the error read like since.
	LastError   error
	FailedSince time.Time
	FailedHash  string
	// Retrying tells that FailedHash is tried again at each poll.
	Retrying bool
	// WatchError is why there are no file events, so that a change is seen
	// by the poll alone; nil while there are.
	WatchError error
}

// Hooks are called by the goroutine of [Controller.Run], which waits for them:
// they must be quick. A nil hook is not called.
type Hooks[G Generation] struct {
	// Loaded follows each swap, with the generation that was replaced: it lingers,
	// and may be looked at.
	Loaded func(before G, s Status)
	// Failed is called once for each content that cannot be used, and for a
	// file that cannot be read: not again for the same content, unless it is
	// tried again no longer, or from now on.
	Failed func(Status)
	// Reworded is called when that failure reads differently than when it was
	// told of last, at most once a minute.
	Reworded func(Status)
	// Cleared is called when the file holds the content in use again, after a
	// failure or while another content was being built.
	Cleared func(Status)
}

// call leaves out a hook that is nil.
func call(hook func(Status), status Status) {
	if hook != nil {
		hook(status)
	}
}

// retryable reports whether err, or what it wraps, says that the same content may
// succeed later, as when a plugin is away: it has Retryable() bool.
func retryable(err error) bool {
	var r interface{ Retryable() bool }
	return errors.As(err, &r) && r.Retryable()
}
