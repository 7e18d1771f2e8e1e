package faultplugin

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
)

// sealStream encrypts with the stream of key bits that belongs to a nonce, and puts that
// in front. It is as safe as the nonces.
func (k *kek) sealStream(nonce, plaintext []byte) []byte {
	sealed := append(bytes.Clone(nonce), k.withStream(nonce, plaintext)...)
	return append(sealed, k.macOf(sealed)...)
}

func (k *kek) openStream(nonce int, sealed []byte) ([]byte, error) {
	n := len(sealed) - sha256.Size
	if n < nonce || n > nonce+sha512.Size || !hmac.Equal(sealed[n:], k.macOf(sealed[:n])) {
		return nil, errors.New("it is not authentic")
	}
	return k.withStream(sealed[:nonce], sealed[nonce:n]), nil
}

// withStream is a text of at most 64 bytes, encrypted or decrypted.
func (k *kek) withStream(nonce, text []byte) []byte {
	stream := hmac.New(sha512.New, k.stream)
	stream.Write(nonce)
	other := stream.Sum(nil)[:len(text)]
	for i := range text {
		other[i] ^= text[i]
	}
	return other
}

func (k *kek) macOf(sealed []byte) []byte {
	mac := hmac.New(sha256.New, k.stream)
	mac.Write(sealed)
	return mac.Sum(nil)
}
