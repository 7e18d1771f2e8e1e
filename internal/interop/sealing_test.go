package interop

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/fips140"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"golang.org/x/crypto/nacl/secretbox"
	"google.golang.org/protobuf/proto"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
)

// Here every format is written a third time, from the standard library alone,
// so that it can be written with a mistake, too.

// content is a whole AES block, so that its padding is one more.
var content = []byte("sixteen bytes...")

// rewrite is what a broken server stores in the place of what it should.
type rewrite func(data []byte) []byte

// onPayload rewrites what follows the prefix.
func onPayload(change func(payload []byte) []byte) rewrite {
	return func(data []byte) []byte {
		_, payload := payloadOf(data)
		prefix := data[:len(data)-len(payload)]
		return append(bytes.Clone(prefix), change(bytes.Clone(payload))...)
	}
}

// onObject rewrites a KMS v2 object.
func onObject(change func(*kmstypes.EncryptedObject)) rewrite {
	return onPayload(func(payload []byte) []byte {
		object := &kmstypes.EncryptedObject{}
		must(0, proto.Unmarshal(payload, object))
		change(object)
		return must(proto.Marshal(object))
	})
}

// onData seals the content again under the secret of a KMS v2 object.
func onData(seal func(secret []byte) []byte) rewrite {
	return onObject(func(o *kmstypes.EncryptedObject) {
		wrapped, _, _ := bytes.Cut(o.EncryptedDEKSource, []byte("."))
		o.EncryptedData = seal(unwrapped(wrapped))
	})
}

// onDataV1 seals the content again under the DEK of a KMS v1 record.
func onDataV1(seal func(dek []byte) []byte) rewrite {
	return onPayload(func(payload []byte) []byte {
		end := 2 + int(binary.BigEndian.Uint16(payload))
		return append(payload[:end:end], seal(unwrapped(payload[2:end]))...)
	})
}

func unwrapped(wrapped []byte) []byte {
	return must(base64.StdEncoding.DecodeString(string(wrapped)))
}

// must is for what cannot fail in a test that is right.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// nonce is any n bytes.
func nonce(n int) []byte { return bytes.Repeat([]byte{'n'}, n) }

var aad = here.AuthenticatedData()

// gcm is nonce, ciphertext and tag.
func gcm(key, nonce, aad []byte) []byte {
	block := must(aes.NewCipher(key))
	var aead cipher.AEAD
	fips140.WithoutEnforcement(func() { aead = must(cipher.NewGCMWithNonceSize(block, len(nonce))) })
	return aead.Seal(bytes.Clone(nonce), nonce, content, aad)
}

// gcmTag is gcm with a tag of n bytes.
func gcmTag(key []byte, n int) []byte {
	var aead cipher.AEAD
	fips140.WithoutEnforcement(func() { aead = must(cipher.NewGCMWithTagSize(must(aes.NewCipher(key)), n)) })
	return aead.Seal(nonce(12), nonce(12), content, aad)
}

// cbc is IV and ciphertext of the content with the padding.
func cbc(key, padding []byte) []byte {
	padded := append(bytes.Clone(content), padding...)
	cipher.NewCBCEncrypter(must(aes.NewCipher(key)), nonce(16)).CryptBlocks(padded, padded)
	return append(nonce(16), padded...)
}

// ctr is cbc in another mode.
func ctr(key, padding []byte) []byte {
	padded := append(bytes.Clone(content), padding...)
	cipher.NewCTR(must(aes.NewCipher(key)), nonce(16)).XORKeyStream(padded, padded)
	return append(nonce(16), padded...)
}

// padding is that of PKCS #7 for a whole block.
func padding() []byte { return bytes.Repeat([]byte{16}, 16) }

// box is nonce, tag and ciphertext.
func box(key []byte) []byte {
	return secretbox.Seal(nonce(24), content, (*[24]byte)(nonce(24)), (*[32]byte)(key))
}

// expand is HKDF-Expand.
func expand(seed, info []byte) []byte {
	return must(hkdf.Expand(sha256.New, seed, string(info), 32))
}

// rotate moves the first n bytes to the end.
func rotate(b []byte, n int) []byte { return append(bytes.Clone(b[n:]), b[:n]...) }
