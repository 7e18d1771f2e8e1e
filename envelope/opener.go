package envelope

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"

	"github.com/kube-atrest/atrest/internal/erase"
	"github.com/kube-atrest/atrest/internal/gcm"
	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/internal/stored"
)

// opener opens the data of stored objects under one unwrapped DEK or seed. It
// cannot seal: a key that came from storage must never meet a nonce counter
// that began anew. Implementations are safe for concurrent use.
type opener interface {
	open(data, aad []byte) ([]byte, error)
}

// newOpener makes the opener for what a plugin unwrapped. The secret is not kept
// and may be cleared afterwards.
func newOpener(t stored.SourceType, secret []byte) (opener, error) {
	if t == stored.SourceSeed {
		s, err := newSeed(secret)
		if err != nil {
			return nil, err
		}
		return &seedOpener{As: "seed", seed: s}, nil
	}
	var aead cipher.AEAD
	var err error
	erase.Do(func() { aead, err = newGCM(secret, gcm.RandomNonce) })
	if err != nil {
		return nil, fmt.Errorf("DEK: %w", err)
	}
	return &dekOpener{As: "DEK", aead: aead}, nil
}

func newGCM(key []byte, form newAEAD) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return form(block)
}

var errTooShort = errors.New("data is shorter than its header")

type dekOpener struct {
	redact.As
	aead cipher.AEAD
}

func (o *dekOpener) open(data, aad []byte) ([]byte, error) {
	return o.aead.Open(nil, nil, data, aad)
}

type seedOpener struct {
	redact.As
	seed *seed
}

func (o *seedOpener) open(data, aad []byte) ([]byte, error) {
	if len(data) < infoSize {
		return nil, errTooShort
	}
	aead, err := o.seed.aead(data[:infoSize], gcm.RandomNonce)
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, nil, data[infoSize:], aad)
}
