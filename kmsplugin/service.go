package kmsplugin

import "context"

// Limits of KEP-3299, in bytes; an apiserver refuses what goes beyond them.
const (
	// MaxKeyID bounds a key_id, which is never empty.
	MaxKeyID = 1024
	// MaxCiphertext bounds a wrapped key, which is never empty.
	MaxCiphertext = 1024
	// MaxAnnotations bounds the sum of all annotation names and values.
	MaxAnnotations = 32 * 1024
)

// Limits of this kit, in bytes, where KEP-3299 has none.
const (
	// MaxPlaintext bounds the key to wrap. An apiserver sends 32 bytes; more
	// than 512 would leave a Service little room inside MaxCiphertext.
	MaxPlaintext = 512
	// MaxUID bounds the id of a request. An apiserver sends a UUID.
	MaxUID = 256
)

// A Service wraps and unwraps the keys that an apiserver encrypts with (DEKs)
// under keys that never leave it (KEKs). Its methods are called from many
// goroutines at once and return soon after ctx ends: the caller's deadline is
// on it, 3 s unless the EncryptionConfiguration says otherwise, and a minute at most. The
// caller has its answer then in any case.
//
// An error becomes a gRPC status with the code that the comment of its class says, from
// [ErrUnavailable] to [ErrInvalid], and an ErrorInfo; the error of an ended ctx
// codes.Canceled or codes.DeadlineExceeded; an error that carries a gRPC status keeps
// its code, and all others are codes.Unknown. A panic is codes.Internal. The text crosses
// the socket, cut to [MaxError] bytes, and is logged by apiservers: it must never hold key
// material.
type Service interface {
	// Status tells the key_id that Encrypt wraps under now: 1 to [MaxKeyID] bytes of
	// UTF-8. An apiserver asks every 60 s, every 10 s while something is wrong, and
	// once a new key_id shows it asks Encrypt for a new DEK. Status and Encrypt have to
	// agree on the key_id, or the new DEK is thrown away. A key_id names one KEK for ever:
	// one used again for another KEK makes apiservers take old data for current.
	//
	// While nothing can be wrapped it is an error, and never a key_id with a text that
	// says so: kube-apiserver goes on to write under such a key_id for ever
	// (kubernetes/kubernetes#138950).
	Status(ctx context.Context) (keyID string, err error)

	// Encrypt wraps plaintext, 1 to [MaxPlaintext] bytes, which it neither
	// changes nor keeps. uid, at most [MaxUID] bytes, names the request in logs
	// on both sides and nothing more.
	Encrypt(ctx context.Context, uid string, plaintext []byte) (Sealed, error)

	// Decrypt unwraps what Encrypt returned, for as long as anything wrapped
	// under that key_id may exist: years, backups included. sealed is within
	// the limits of [Sealed]; Decrypt neither changes nor keeps it. The result
	// is 1 to [MaxPlaintext] bytes and the caller's own.
	Decrypt(ctx context.Context, uid string, sealed Sealed) ([]byte, error)
}

// Sealed is a wrapped key. An apiserver stores all of it, in the clear, beside
// each value, and hands it back to [Service.Decrypt] unchanged.
type Sealed struct {
	// Ciphertext is 1 to [MaxCiphertext] bytes.
	Ciphertext []byte
	// KeyID names the KEK: 1 to [MaxKeyID] bytes of UTF-8.
	KeyID string
	// Annotations are anything else that Decrypt needs. Names are fully
	// qualified domain names (RFC 1123, at least two labels, lower case); names
	// and values together are at most [MaxAnnotations] bytes. Usually nil.
	Annotations map[string][]byte
}
