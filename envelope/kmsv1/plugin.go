package kmsv1

import (
	"context"

	"github.com/kube-atrest/atrest/internal/plugin"
)

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

// bounded is a plugin whose errors have a bounded text.
type bounded struct{ Plugin }

func (b bounded) Encrypt(ctx context.Context, dek []byte) ([]byte, error) {
	wrapped, err := b.Plugin.Encrypt(ctx, dek)
	return wrapped, plugin.Cut(err)
}

func (b bounded) Decrypt(ctx context.Context, wrapped []byte) ([]byte, error) {
	secret, err := b.Plugin.Decrypt(ctx, wrapped)
	return secret, plugin.Cut(err)
}
