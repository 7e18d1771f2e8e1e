package side

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"sync"

	"k8s.io/apiserver/pkg/storage/value"
)

// localKey is the key of all that is not wrapped by a plugin.
var localKey = [32]byte([]byte("a key of 32 bytes, in a test fil"))

var localKeyText = base64.StdEncoding.EncodeToString(localKey[:])

// floorOf says whose floor a bare cipher is: to be fair, the buffer that it writes into is
// as much longer than the value as what that side stores.
var floorOf = map[string]string{Cipher: AtrestCounter, CipherRandom: AtrestAESGCM, CipherSeed: AtrestSeed}

// bare is what no way of keeping values encrypted can do without.
func (l *Lab) bare(ctx context.Context, name string) (*Side, error) {
	if floorOf[name] == "" {
		return nil, fmt.Errorf("there is no side %q", name)
	}
	above, err := l.Start(ctx, floorOf[name], l.Quick)
	if err != nil {
		return nil, err
	}
	defer above.Close()
	stored, err := above.Stored(ctx, nil, Key("room"))
	if err != nil {
		return nil, err
	}
	s := &Side{Name: name}
	block, err := aes.NewCipher(localKey[:])
	switch {
	case err != nil:
	case name == Cipher: // under a nonce that costs nothing
		b := &bareAEAD{room: len(stored), nonce: make([]byte, 12)}
		b.aead, err = cipher.NewGCM(block)
		s.Transformer = b
	case name == CipherRandom:
		b := &bareAEAD{room: len(stored)}
		b.aead, err = cipher.NewGCMWithRandomNonce(block)
		s.Transformer = b
	default:
		b := &bareSeed{room: len(stored)}
		b.expanders.New = func() any { return &expander{mac: hmac.New(sha256.New, localKey[:]), last: [1]byte{1}} }
		s.Transformer = b
	}
	return s, err
}

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

// bareSeed is the least that source type 1 takes: 32 random bytes, one HMAC
// for the value's own key (its keyed state is kept), the key schedule, and
// AES-256-GCM under a random nonce.
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
