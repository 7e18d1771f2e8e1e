package envelope

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"sync"

	"github.com/kube-atrest/atrest/internal/erase"
	"github.com/kube-atrest/atrest/internal/redact"
)

const (
	seedSize = 32 // bytes; a longer seed is read, a shorter one is not
	infoSize = 32 // bytes before the nonce of a value sealed under a seed
)

// seed expands a key for each value: HKDF-Expand with SHA-256 (RFC 5869, 2.3)
// of an output as long as the hash, so that one HMAC over info and the byte 1
// is the key. There is no extract step: a seed is uniformly random. The keyed
// HMAC state is kept, which spares two of the four SHA-256 blocks. Safe for
// concurrent use.
type seed struct {
	redact.As
	macs sync.Pool // of *mac
}

type mac struct {
	redact.As
	hash.Hash
	key [sha256.Size]byte
}

func newSeed(secret []byte) (*seed, error) {
	if len(secret) < seedSize {
		return nil, fmt.Errorf("HKDF seed is %d bytes, fewer than %d", len(secret), seedSize)
	}
	own := append([]byte(nil), secret...)
	s := &seed{As: "seed"}
	erase.With(s, own)
	s.macs.New = func() any { return &mac{As: "seed", Hash: hmac.New(sha256.New, own)} }
	return s, nil
}

var expandLast = []byte{1}

// newAEAD is one of the forms of package gcm.
type newAEAD func(cipher.Block) (cipher.AEAD, error)

// aead is AES-256-GCM under the key for info.
func (s *seed) aead(info []byte, form newAEAD) (cipher.AEAD, error) {
	m := s.macs.Get().(*mac)
	defer s.macs.Put(m)
	m.Reset()
	m.Write(info)
	m.Write(expandLast)
	key := m.Sum(m.key[:0])
	aead, err := newGCM(key, form)
	clear(key)
	return aead, err
}
