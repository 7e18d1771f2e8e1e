package transformer

import (
	"context"
	"crypto/rand"
	"fmt"

	"golang.org/x/crypto/nacl/secretbox"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/internal/stored"
)

const (
	secretboxKeySize   = 32
	secretboxNonceSize = 24
)

var errSecretbox = fmt.Errorf("secretbox: authentication failed: %w", stored.ErrCorrupt)

type secretBox struct {
	redact.As
	// A pointer, because fmt prints what a pointer inside another struct points
	// to only one level deep: [redact.As] is not asked below unexported fields.
	key *[secretboxKeySize]byte
}

var _ Provider = (*secretBox)(nil)

// NewSecretbox seals with NaCl's secretbox (XSalsa20 and Poly1305) under a key
// of 32 bytes, which is copied. The payload is a random nonce of 24 bytes, a tag
// of 16, and the ciphertext.
//
// The etcd key is not authenticated: a value moved to another one still opens.
func NewSecretbox(key []byte) (Provider, error) {
	if len(key) != secretboxKeySize {
		return nil, fmt.Errorf("secretbox: the key has %d bytes, want %d", len(key), secretboxKeySize)
	}
	own := [secretboxKeySize]byte(key)
	return &secretBox{As: "secretbox key", key: &own}, nil
}

func (p *secretBox) Seal(_ context.Context, prefix string, plaintext []byte, _ value.Context) ([]byte, error) {
	head := len(prefix) + secretboxNonceSize
	out := make([]byte, head, head+secretbox.Overhead+len(plaintext))
	nonce := out[copy(out, prefix):]
	_, _ = rand.Read(nonce) // never fails: it ends the process instead
	return secretbox.Seal(out, plaintext, (*[secretboxNonceSize]byte)(nonce), p.key), nil
}

func (p *secretBox) Open(_ context.Context, payload []byte, _ value.Context) ([]byte, bool, error) {
	if len(payload) < secretboxNonceSize+secretbox.Overhead {
		return nil, false, errSecretbox
	}
	nonce, box := payload[:secretboxNonceSize], payload[secretboxNonceSize:]
	out := make([]byte, 0, len(box)-secretbox.Overhead)
	plaintext, ok := secretbox.Open(out, box, (*[secretboxNonceSize]byte)(nonce), p.key)
	if !ok {
		return nil, false, errSecretbox
	}
	return plaintext, false, nil
}
