package envelope

import (
	"context"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// Plugin is a KMS v2 plugin (KEP-3299) as this package needs it; [Dial] makes
// one. Implementations are safe for concurrent use, bound the time of each
// call themselves, and leave gRPC statuses reachable by errors.As.
type Plugin interface {
	// Status reports the plugin's health and the key_id of its current KEK.
	Status(ctx context.Context) (Status, error)
	// Encrypt wraps a DEK under the current KEK.
	Encrypt(ctx context.Context, dek []byte) (Wrapped, error)
	// Decrypt unwraps what Encrypt gave out, by this process or any other.
	// The caller owns the result.
	Decrypt(ctx context.Context, w Wrapped) ([]byte, error)
	// Wake signals that the connection to the plugin came up or broke, so
	// that it is worth asking before the next poll is due. It may be nil.
	Wake() <-chan struct{}
	// Close ends the connection. Calls under way fail.
	Close() error
}

// Status is a plugin's own account of itself.
type Status struct {
	Version string // "v2" or "v2beta1"
	Healthz string // "ok", or what is wrong
	KeyID   string // of the current KEK, 1 to 1024 bytes
}

// Wrapped is a DEK under a KEK. Nothing in it is secret.
type Wrapped struct {
	Ciphertext  []byte
	KeyID       string
	Annotations map[string][]byte
}

func wrappedOf(s *stored.DEKSource) Wrapped {
	return Wrapped{Ciphertext: s.EncryptedDEK, KeyID: s.KeyID, Annotations: s.AnnotationMap()}
}

// bounded is a plugin whose errors have a bounded text.
type bounded struct{ Plugin }

func (b bounded) Status(ctx context.Context) (Status, error) {
	s, err := b.Plugin.Status(ctx)
	return s, plugin.Cut(err)
}

func (b bounded) Encrypt(ctx context.Context, dek []byte) (Wrapped, error) {
	w, err := b.Plugin.Encrypt(ctx, dek)
	return w, plugin.Cut(err)
}

func (b bounded) Decrypt(ctx context.Context, w Wrapped) ([]byte, error) {
	secret, err := b.Plugin.Decrypt(ctx, w)
	return secret, plugin.Cut(err)
}
