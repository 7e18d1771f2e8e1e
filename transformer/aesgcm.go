package transformer

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"fmt"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/gcm"
	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/internal/stored"
)

var errGCM = fmt.Errorf("aesgcm: authentication failed: %w", stored.ErrCorrupt)

type aesGCM struct {
	redact.As
	aead cipher.AEAD // takes no nonce: Seal puts a random one first, Open expects it there
}

var _ Provider = (*aesGCM)(nil)

// NewAESGCM seals with AES-GCM under a key of 16, 24 or 32 bytes, which is not
// kept. The payload is a random nonce of 12 bytes, the ciphertext, and a tag of
// 16; the etcd key is authenticated with it.
//
// NIST SP 800-38D section 8.3 allows a key 2^32 values with random nonces.
// Nothing counts them here: replace the key long before that.
//
// It works under GODEBUG=fips140=only.
func NewAESGCM(key []byte) (Provider, error) {
	block, err := newAES("aesgcm", key)
	if err != nil {
		return nil, err
	}
	aead, err := gcm.RandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("aesgcm: %w", err)
	}
	return &aesGCM{As: "aesgcm key", aead: aead}, nil
}

func (p *aesGCM) Seal(_ context.Context, prefix string, plaintext []byte, at value.Context) ([]byte, error) {
	out := make([]byte, len(prefix), len(prefix)+len(plaintext)+p.aead.Overhead())
	copy(out, prefix)
	return p.aead.Seal(out, nil, plaintext, at.AuthenticatedData()), nil
}

func (p *aesGCM) Open(_ context.Context, payload []byte, at value.Context) ([]byte, bool, error) {
	plaintext, err := p.aead.Open(nil, nil, payload, at.AuthenticatedData())
	if err != nil {
		return nil, false, errGCM
	}
	return plaintext, false, nil
}

// newAES is [aes.NewCipher] with an error that says whose key it was.
func newAES(kind string, key []byte) (cipher.Block, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("%s: the key has %d bytes, want 16, 24 or 32", kind, len(key))
	}
	return block, nil
}
