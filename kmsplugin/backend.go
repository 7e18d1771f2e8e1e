package kmsplugin

import "context"

// A Backend is where KEKs are: a KMS, an HSM, a file. A [Keeper] makes a [Service] of it.
type Backend interface {
	// Open logs in and loads what there is. It is called again when a file of
	// [Config.Credentials] changes, and when a session has ended, at most once a second, while
	// the last session is still called; until it has succeeded once apiservers are told that
	// the plugin starts. A session that does not tell its versions yet is kept, and asked again.
	Open(ctx context.Context) (Session, error)
}

// A Session is an open back end. Its methods are called from many goroutines, at most
// [Config.Concurrency] at once, and return soon after ctx ends; whoever called gets an
// answer then in any case. Errors wrap one of the classes, [ErrUnavailable] to
// [ErrInvalid], where one is right; they hold no key material.
//
// A Session that has a method Renew(context.Context) error has it called once, on a
// goroutine of its own: it keeps the session alive, as by renewing a token, until ctx
// ends, and returns earlier when that is over, or will be soon. Then another one is opened,
// and this one is called until that is there.
//
// One that has a method Destroy(context.Context, Version) error destroys a version for ever,
// for [Keeper.Destroy]. That the version is missing from then on is no error of Versions.
type Session interface {
	// Versions are all that unwrap now. It is called every [Config.Poll], and never by an
	// apiserver's call of Status. While it fails, nothing is wrapped, and the
	// versions that come with the error unwrap or, if none do, those that were known
	// before. Its ctx ends a tenth of [Config.CallTimeout] before it is given up, so that what
	// it has found by then can come.
	Versions(ctx context.Context) (Versions, error)
	// Wrap wraps a DEK of 1 to [MaxPlaintext] bytes under exactly v. used is what it was
	// wrapped under as the ciphertext or the KMS says it, and not as it was asked for:
	// if it is not v the answer is thrown away. aad is bound to the ciphertext if
	// the back end can do that.
	Wrap(ctx context.Context, v Version, dek, aad []byte) (ciphertext []byte, used Version, err error)
	// Unwrap is the way back. The result is the caller's own.
	Unwrap(ctx context.Context, v Version, ciphertext, aad []byte) ([]byte, error)
	// Close is called once, after the last call has returned.
	Close(ctx context.Context) error
}

// Versions are those of a back end.
type Versions struct {
	// All are those that unwrap, the oldest first.
	All []Version
	// Writes is the index of the one to wrap with.
	Writes int
	// Oldest is the index of the oldest that wraps: those before it only unwrap. One of them
	// that is announced is so no longer, however young those after it are.
	Oldest int
	// Partial is that not all could be asked, so that there may be others, as on another HSM of
	// a cluster. Until all could be, a key_id that is not known is [ErrUnavailable] and not
	// [ErrUnknownKey], and no version is told to be gone.
	Partial bool
	// Withheld is why others there are do not unwrap, and would if somebody let them, as a
	// minimum that was raised; nil if there are none. A key_id that is not known may be one of
	// theirs: it is this error then and not [ErrUnknownKey].
	Withheld error
}
