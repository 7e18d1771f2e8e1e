// Package kek is one thing: a KEK in this process's memory, that wraps DEKs and shows itself to
// nobody by accident.
package kek

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"fmt"
	"io"
)

// Size is the size of a KEK in bytes: AES-256.
const Size = 32

const redacted = "[redacted KEK]"

// A KEK is key material. Every way to print or marshal it tells nothing. It
// keeps the material in a closure because fmt does not ask unexported fields
// of the types around it how they want to be printed, and follows pointers
// when the verb does not fit; of a function it prints the address.
type KEK struct {
	reveal func() *material
}

type material struct {
	bytes  [Size]byte
	domain string
	aead   cipher.AEAD // with a random nonce in front of what it seals
}

// New makes a KEK of its bytes. domain separates this use of it from any other: it is part of
// the additional data of whatever it seals.
func New(domain string, bytes [Size]byte) (KEK, error) {
	block, err := aes.NewCipher(bytes[:])
	if err != nil {
		return KEK{}, fmt.Errorf("cipher: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return KEK{}, fmt.Errorf("cipher: %w", err)
	}
	m := &material{bytes: bytes, domain: domain, aead: aead}
	return KEK{reveal: func() *material { return m }}, nil
}

// Random draws a new KEK.
func Random(domain string, random io.Reader) (KEK, error) {
	var bytes [Size]byte
	if _, err := io.ReadFull(random, bytes[:]); err != nil {
		return KEK{}, fmt.Errorf("randomness for a new key: %w", err)
	}
	return New(domain, bytes)
}

// Reveal is the key itself. It belongs to the KEK.
func (k KEK) Reveal() []byte { return k.reveal().bytes[:] }

// Erase overwrites the key itself. What the cipher keeps of it goes with the last reference.
func (k KEK) Erase() { clear(k.reveal().bytes[:]) }

// Equal tells in constant time.
func (k KEK) Equal(other KEK) bool {
	return subtle.ConstantTimeCompare(k.Reveal(), other.Reveal()) == 1
}

// Seal wraps a DEK; keyID, the key_id as it is stored beside, goes into the additional data.
func (k KEK) Seal(dek, keyID []byte) []byte {
	m := k.reveal()
	return m.aead.Seal(nil, nil, dek, m.additionalData(keyID))
}

// Open unwraps what Seal returned.
func (k KEK) Open(ciphertext, keyID []byte) ([]byte, error) {
	m := k.reveal()
	return m.aead.Open(nil, nil, ciphertext, m.additionalData(keyID))
}

func (m *material) additionalData(keyID []byte) []byte { return append([]byte(m.domain), keyID...) }

// String tells nothing.
func (KEK) String() string { return redacted }

// GoString tells nothing.
func (KEK) GoString() string { return redacted }

// Format tells nothing, whatever the verb.
func (KEK) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, redacted) }

// MarshalText tells nothing.
func (KEK) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON tells nothing.
func (KEK) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
