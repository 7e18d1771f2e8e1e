package keyfile

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"fmt"
	"io"
)

// kekSize is the size of a KEK in bytes: AES-256.
const kekSize = 32

const redacted = "[redacted KEK]"

// A kek is key material. Every way to print or marshal it tells nothing. It
// keeps the material in a closure because fmt does not ask unexported fields
// of the types around it how they want to be printed, and follows pointers
// when the verb does not fit; of a function it prints the address.
type kek struct {
	reveal func() *material
}

type material struct {
	bytes [kekSize]byte
	aead  cipher.AEAD // with a random nonce in front of what it seals
}

func newKEK(bytes [kekSize]byte) (kek, error) {
	block, err := aes.NewCipher(bytes[:])
	if err != nil {
		return kek{}, fmt.Errorf("cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return kek{}, fmt.Errorf("cipher: %w", err)
	}
	m := &material{bytes: bytes, aead: aead}
	return kek{reveal: func() *material { return m }}, nil
}

func randomKEK(random io.Reader) (kek, error) {
	var bytes [kekSize]byte
	if _, err := io.ReadFull(random, bytes[:]); err != nil {
		return kek{}, fmt.Errorf("randomness for a new key: %w", err)
	}
	return newKEK(bytes)
}

func (k kek) equal(other kek) bool {
	return subtle.ConstantTimeCompare(k.reveal().bytes[:], other.reveal().bytes[:]) == 1
}

// seal wraps a DEK; keyID, the key_id as it is stored beside, goes into the additional data.
func (k kek) seal(dek, keyID []byte) []byte {
	return k.reveal().aead.Seal(nil, nil, dek, additionalData(keyID))
}

func (k kek) open(ciphertext, keyID []byte) ([]byte, error) {
	return k.reveal().aead.Open(nil, nil, ciphertext, additionalData(keyID))
}

// domain separates this use of a KEK from any other.
const domain = "atrest-keyfile/v1\x00"

func additionalData(keyID []byte) []byte { return append([]byte(domain), keyID...) }

func (kek) String() string                 { return redacted }
func (kek) GoString() string               { return redacted }
func (kek) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, redacted) }
func (kek) MarshalText() ([]byte, error)   { return []byte(redacted), nil }
func (kek) MarshalJSON() ([]byte, error)   { return []byte(`"` + redacted + `"`), nil }
