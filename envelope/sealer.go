package envelope

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/kube-atrest/atrest/internal/erase"
	"github.com/kube-atrest/atrest/internal/gcm"
	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/internal/stored"
)

// WriteMode is how values are sealed. Both modes read what the other wrote.
type WriteMode string

const (
	// Counter seals under one DEK with a counted nonce (source type 0): the
	// fastest, and the default.
	Counter WriteMode = "counter"
	// Seed expands a DEK for every value from a seed (source type 1): what
	// kube-apiserver writes since 1.29. It is safe where a machine's memory
	// may be copied and resumed twice, and works under GODEBUG=fips140=only.
	Seed WriteMode = "seed"
)

// sourceType is the mode's mark in the stored object.
func (m WriteMode) sourceType() stored.SourceType {
	if m == Seed {
		return stored.SourceSeed
	}
	return stored.SourceDEK
}

// CheckWriteMode reports whether this process can write in mode m. The Go
// runtime refuses a counted nonce under GODEBUG=fips140=only.
func CheckWriteMode(m WriteMode) error {
	switch m {
	case Seed:
		return nil
	case Counter:
		if _, err := newCounterSealer(make([]byte, dekSize), nil, zeros{}, 1); err != nil {
			return fmt.Errorf("write mode %q cannot be used in this process, use %q: %w", Counter, Seed, err)
		}
		return nil
	}
	return fmt.Errorf("unknown write mode %q: use %q or %q", m, Counter, Seed)
}

// WriteModes are the modes in which this process can write, the default first:
// Counter and Seed, or Seed alone where the runtime refuses a counted nonce.
func WriteModes() []WriteMode {
	return slices.DeleteFunc([]WriteMode{Counter, Seed}, func(m WriteMode) bool { return CheckWriteMode(m) != nil })
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

const dekSize = 32 // bytes, of a DEK and of a seed that this package makes

// sealer seals values under one DEK or seed. Implementations are safe for
// concurrent use.
type sealer interface {
	// seal returns prefix and a whole stored object in one new slice, or
	// errUsedUp.
	seal(prefix string, plaintext, aad []byte) ([]byte, error)
	// uses is the budget of values that it may seal.
	uses() *budget
}

// errUsedUp says that a DEK has sealed all it may; a fresh one is needed.
var errUsedUp = errors.New("DEK is used up")

// beginObject makes a slice with prefix and the head of a stored object in it,
// and room for n bytes of data and the tail.
func beginObject(prefix string, n int, tail []byte) []byte {
	out := make([]byte, 0, len(prefix)+stored.SizeData(n)+len(tail))
	return stored.AppendDataHead(append(out, prefix...), n)
}

// counterSealer writes source type 0.
type counterSealer struct {
	redact.As
	aead   cipher.AEAD
	nonces *nonces
	tail   []byte
}

func newCounterSealer(dek, tail []byte, random io.Reader, max uint64) (*counterSealer, error) {
	var aead cipher.AEAD
	var err error
	erase.Do(func() { aead, err = newGCM(dek, gcm.GivenNonce) })
	if err != nil {
		return nil, err
	}
	n, err := newNonces(random, max)
	if err != nil {
		return nil, err
	}
	return &counterSealer{As: "DEK", aead: aead, nonces: n, tail: tail}, nil
}

func (s *counterSealer) seal(prefix string, plaintext, aad []byte) ([]byte, error) {
	out := beginObject(prefix, nonceSize+len(plaintext)+tagSize, s.tail)
	nonce := out[len(out) : len(out)+nonceSize]
	if !s.nonces.next(nonce) {
		return nil, errUsedUp
	}
	out = s.aead.Seal(out[:len(out)+nonceSize], nonce, plaintext, aad)
	return append(out, s.tail...), nil
}

func (s *counterSealer) uses() *budget { return s.nonces.budget }

// seedSealer writes source type 1. Info and nonce are read from the random
// source at once, unless the runtime insists on making nonces itself.
type seedSealer struct {
	redact.As
	seed   *seed
	form   newAEAD
	header int // bytes of info and of the nonce, if it is given
	random io.Reader
	tail   []byte
	budget *budget
}

func newSeedSealer(secret, tail []byte, random io.Reader, max uint64) (*seedSealer, error) {
	s, err := newSeed(secret)
	if err != nil {
		return nil, err
	}
	sealer := &seedSealer{
		As: "seed", seed: s, form: gcm.GivenNonce, header: infoSize + nonceSize,
		random: random, tail: tail, budget: newBudget(max),
	}
	if CheckWriteMode(Counter) != nil {
		sealer.form, sealer.header = gcm.RandomNonce, infoSize
	}
	return sealer, nil
}

func (s *seedSealer) seal(prefix string, plaintext, aad []byte) ([]byte, error) {
	if _, ok := s.budget.take(); !ok {
		return nil, errUsedUp
	}
	out := beginObject(prefix, infoSize+nonceSize+len(plaintext)+tagSize, s.tail)
	header := out[len(out) : len(out)+s.header]
	if _, err := io.ReadFull(s.random, header); err != nil {
		return nil, fmt.Errorf("random info of the value: %w", err)
	}
	aead, err := s.seed.aead(header[:infoSize], s.form)
	if err != nil {
		return nil, err
	}
	out = aead.Seal(out[:len(out)+s.header], header[infoSize:], plaintext, aad)
	return append(out, s.tail...), nil
}

func (s *seedSealer) uses() *budget { return s.budget }
