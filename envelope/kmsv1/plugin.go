package kmsv1

import "context"

// Plugin is a KMS v1 plugin as this package needs it; [Dial] makes one.
// Implementations are safe for concurrent use, bound the time of each call
// themselves, and leave gRPC statuses reachable by errors.As.
type Plugin interface {
	// Encrypt wraps a DEK.
	Encrypt(ctx context.Context, dek []byte) ([]byte, error)
	// Decrypt unwraps what Encrypt gave out, by this process or any other.
	// The caller owns the result.
	Decrypt(ctx context.Context, wrapped []byte) ([]byte, error)
	// Wake signals that the connection to the plugin came up or broke, so
	// that it is worth asking before the next poll is due. It may be nil.
	Wake() <-chan struct{}
	// Close ends the connection. Calls under way fail.
	Close() error
}
