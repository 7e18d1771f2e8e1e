package envelope

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/kube-atrest/atrest/internal/gcm"
)

const (
	nonceSize = gcm.NonceSize
	fixedSize = 4 // bytes of the nonce, its random part
	tagSize   = gcm.TagSize
)

// DefaultMaxWrites is how many values one DEK seals before it is replaced.
// SP 800-38D, 8.2.1 allows all 2^64 values of the counter; the lower limit
// keeps what an attacker could gain from the mere amount of ciphertext small,
// and is still a thousand writes a second for 34 years.
const DefaultMaxWrites = 1 << 40

// maxBudget is the most a budget may hold. Callers that find it spent still
// count: half of the range is left to them, so that it cannot wrap.
const maxBudget = 1 << 63

// budget counts the uses of a key up to a limit. Safe for concurrent use.
type budget struct {
	max  uint64
	used atomic.Uint64
	// Every write changes used on some processor, so nothing else may lie near
	// it: processors fetch lines of 64 bytes in pairs.
	_ [112]byte
}

func newBudget(max uint64) *budget { return &budget{max: min(max, maxBudget)} }

// take counts one use. It returns which use it is, from 1, and false when
// there are none left.
func (b *budget) take() (uint64, bool) {
	n := b.used.Add(1)
	return n, n <= b.max
}

// spent is how many uses were taken, and left how many remain.
func (b *budget) spent() uint64 { return min(b.used.Load(), b.max) }
func (b *budget) left() uint64  { return b.max - b.spent() }

// nonces hands out the nonces of one DEK by the deterministic construction of
// SP 800-38D, 8.2.1: a fixed field of 4 random bytes and an invocation field,
// an 8-byte little-endian counter. The DEK is random, never leaves the process
// in the clear and is never loaded again for sealing, so within it the counter
// alone makes a nonce unique. Safe for concurrent use.
type nonces struct {
	*budget
	fixed [fixedSize]byte
}

func newNonces(random io.Reader, max uint64) (*nonces, error) {
	n := &nonces{budget: newBudget(max)}
	if _, err := io.ReadFull(random, n.fixed[:]); err != nil {
		return nil, fmt.Errorf("random part of the nonce: %w", err)
	}
	return n, nil
}

// next writes a nonce that was never given out before into the first 12 bytes
// of dst, or returns false when there are none left.
func (n *nonces) next(dst []byte) bool {
	count, ok := n.take()
	if !ok {
		return false
	}
	copy(dst[:fixedSize], n.fixed[:])
	binary.LittleEndian.PutUint64(dst[fixedSize:nonceSize], count)
	return true
}
