// Package gcm is AES-GCM in the two forms that stored values need, in every
// mode in which the Go runtime can be: as it is, under GODEBUG=fips140=only, and
// built with GOEXPERIMENT=boringcrypto.
package gcm

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"slices"
)

// Sizes in bytes (SP 800-38D; the recommended nonce).
const (
	NonceSize = 12
	TagSize   = 16
)

var errOpen = errors.New("authentication failed")

// RandomNonce is AES-GCM over nonce, ciphertext and tag in one piece: Seal puts a
// random nonce first, Open takes any from there. It prefers the runtime's own
// construction, the only one that the FIPS 140-only mode admits. That refuses
// the ciphers of a binary built with boringcrypto; there the same bytes are
// made here.
func RandomNonce(block cipher.Block) (cipher.AEAD, error) {
	if aead, err := cipher.NewGCMWithRandomNonce(block); err == nil {
		return aead, nil
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return randomNonce{aead}, nil
}

// GivenNonce is AES-GCM whose caller chooses the nonce. The FIPS 140-only mode
// refuses it.
func GivenNonce(block cipher.Block) (cipher.AEAD, error) { return cipher.NewGCM(block) }

// randomNonce does what [cipher.NewGCMWithRandomNonce] does, over any GCM. dst
// must not overlap the input.
type randomNonce struct{ gcm cipher.AEAD }

func (randomNonce) NonceSize() int { return 0 }

func (randomNonce) Overhead() int { return NonceSize + TagSize }

func (g randomNonce) Seal(dst, _, plaintext, additionalData []byte) []byte {
	dst = append(dst, make([]byte, NonceSize)...)
	nonce := dst[len(dst)-NonceSize:]
	_, _ = rand.Read(nonce) // never fails: it ends the process instead
	return g.gcm.Seal(dst, nonce, plaintext, additionalData)
}

func (g randomNonce) Open(dst, _, ciphertext, additionalData []byte) ([]byte, error) {
	if len(ciphertext) < g.Overhead() {
		return nil, errOpen
	}
	dst = slices.Grow(dst, len(ciphertext)-g.Overhead()) // boringcrypto's grows byte by byte
	return g.gcm.Open(dst, ciphertext[:NonceSize], ciphertext[NonceSize:], additionalData)
}
