package side

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"sync"

	"golang.org/x/crypto/nacl/secretbox"
	"k8s.io/apiserver/pkg/storage/value"
)

// localKey is the key of all that is not wrapped by a plugin.
var localKey = [32]byte([]byte("a key of 32 bytes, in a test fil"))

var localKeyText = base64.StdEncoding.EncodeToString(localKey[:])

// The bare ciphers are the floor: what no way of keeping values encrypted can
// do without. Room is how many bytes longer than the value their buffer is; to
// be fair it is as many as the stored form of the others takes.

// Cipher is AES-256-GCM under a nonce that costs nothing, into a fresh buffer.
func Cipher(room int) *Side {
	gcm, err := cipher.NewGCM(localBlock())
	if err != nil {
		panic(err) // of constant arguments
	}
	return &Side{Name: "cipher", Transformer: &bareAEAD{aead: gcm, nonce: make([]byte, gcm.NonceSize()), room: room}}
}

// RandomNonceCipher is AES-256-GCM under a random nonce, as aesgcm is stored.
func RandomNonceCipher(room int) *Side {
	gcm, err := cipher.NewGCMWithRandomNonce(localBlock())
	if err != nil {
		panic(err) // of constant arguments
	}
	return &Side{Name: "cipher", Transformer: &bareAEAD{aead: gcm, room: room}}
}

func localBlock() cipher.Block {
	block, err := aes.NewCipher(localKey[:])
	if err != nil {
		panic(err) // of constant arguments
	}
	return block
}

var errBare = errors.New("the bare cipher does not open it")

type bareAEAD struct {
	aead  cipher.AEAD
	nonce []byte
	room  int
}

func (b *bareAEAD) TransformToStorage(_ context.Context, data []byte, at value.Context) ([]byte, error) {
	return b.aead.Seal(make([]byte, 0, len(data)+b.room), b.nonce, data, at.AuthenticatedData()), nil
}

func (b *bareAEAD) TransformFromStorage(_ context.Context, data []byte, at value.Context) ([]byte, bool, error) {
	out, err := b.aead.Open(nil, b.nonce, data, at.AuthenticatedData())
	return out, false, err
}

// Secretbox is NaCl's secretbox under a random nonce.
func Secretbox(room int) *Side {
	return &Side{Name: "cipher", Transformer: bareSecretbox{room}}
}

type bareSecretbox struct{ room int }

func (b bareSecretbox) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	out := make([]byte, 24, len(data)+b.room)
	_, _ = rand.Read(out)
	return secretbox.Seal(out, data, (*[24]byte)(out), &localKey), nil
}

func (b bareSecretbox) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	out, ok := secretbox.Open(make([]byte, 0, len(data)-24), data[24:], (*[24]byte)(data), &localKey)
	if !ok {
		return nil, false, errBare
	}
	return out, false, nil
}

// CBC is AES-256-CBC under a random IV, of whole blocks: without padding.
func CBC(room int) *Side {
	return &Side{Name: "cipher", Transformer: &bareCBC{block: localBlock(), room: room}}
}

type bareCBC struct {
	block cipher.Block
	room  int
}

func (b *bareCBC) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	out := make([]byte, aes.BlockSize+len(data), len(data)+b.room)
	_, _ = rand.Read(out[:aes.BlockSize])
	cipher.NewCBCEncrypter(b.block, out[:aes.BlockSize]).CryptBlocks(out[aes.BlockSize:], data)
	return out, nil
}

func (b *bareCBC) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	out := make([]byte, len(data)-aes.BlockSize)
	cipher.NewCBCDecrypter(b.block, data[:aes.BlockSize]).CryptBlocks(out, data[aes.BlockSize:])
	return out, false, nil
}

// SeedCipher is the least that source type 1 takes: 32 random bytes, one HMAC
// for the value's own key (its keyed state is kept), the key schedule, and
// AES-256-GCM under a random nonce.
func SeedCipher(room int) *Side {
	s := &bareSeed{room: room}
	s.expanders.New = func() any { return &expander{mac: hmac.New(sha256.New, localKey[:]), last: [1]byte{1}} }
	return &Side{Name: "cipher-seed", Transformer: s}
}

type bareSeed struct {
	expanders sync.Pool
	room      int
}

type expander struct {
	mac  hash.Hash
	last [1]byte
	key  [sha256.Size]byte
}

const infoSize = 32 // bytes, before the nonce

func (b *bareSeed) aead(info []byte) (cipher.AEAD, error) {
	e := b.expanders.Get().(*expander)
	defer b.expanders.Put(e)
	e.mac.Reset()
	e.mac.Write(info)
	e.mac.Write(e.last[:])
	block, err := aes.NewCipher(e.mac.Sum(e.key[:0]))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func (b *bareSeed) TransformToStorage(_ context.Context, data []byte, at value.Context) ([]byte, error) {
	out := make([]byte, infoSize, len(data)+b.room)
	_, _ = rand.Read(out)
	aead, err := b.aead(out)
	if err != nil {
		return nil, err
	}
	return aead.Seal(out, nil, data, at.AuthenticatedData()), nil
}

func (b *bareSeed) TransformFromStorage(_ context.Context, data []byte, at value.Context) ([]byte, bool, error) {
	aead, err := b.aead(data[:infoSize])
	if err != nil {
		return nil, false, err
	}
	out, err := aead.Open(nil, nil, data[infoSize:], at.AuthenticatedData())
	return out, false, err
}
