package transformer

import (
	"context"

	"k8s.io/apiserver/pkg/storage/value"
)

// Provider seals a value into its stored form, and opens it again, under one
// key that it holds or that stands behind it.
//
// Implementations are safe for concurrent use, return slices that they do not
// keep, and answer any bytes whatever with a value or an error. at is never nil,
// and not kept; AuthenticatedData is called at most once per call, because it
// allocates.
type Provider interface {
	// Seal returns prefix followed by the payload, in one buffer. plaintext is
	// neither modified nor kept.
	Seal(ctx context.Context, prefix string, plaintext []byte, at value.Context) ([]byte, error)

	// Open returns the plaintext of payload, which is what follows the prefix.
	// payload is neither modified nor kept, but identity returns it as it is.
	// stale asks the caller to write the value again, though it did not change.
	// The error wraps [ErrCorrupt] if the payload itself is at fault.
	Open(ctx context.Context, payload []byte, at value.Context) (plaintext []byte, stale bool, err error)
}
