package suite

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/side"
)

// kib is the size of a value where size is not what is looked at.
const kib = 1 << 10

// key is the etcd key of a value where it does not matter.
var key = side.Key("bench-0123456789")

// plaintext is a value of a size, the same each time.
func plaintext(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}

// writing repeats the writing of one value.
func writing(ctx context.Context, name measure.Name, s *side.Side, value []byte) *measure.Loop {
	return &measure.Loop{Name: name, Bytes: len(value), Do: func() error {
		_, err := s.TransformToStorage(ctx, value, key)
		return err
	}}
}

var errShort = errors.New("what was read is not as long as what was written")

// reading repeats the reading of the values in turn.
func reading(ctx context.Context, name measure.Name, s *side.Side, size int, values ...[]byte) *measure.Loop {
	next := 0
	take := func() []byte { return values[0] }
	if len(values) > 1 {
		take = func() []byte {
			next = (next + 1) % len(values)
			return values[next]
		}
	}
	return &measure.Loop{Name: name, Bytes: size, Do: func() error {
		out, _, err := s.TransformFromStorage(ctx, take(), key)
		if err == nil && len(out) != size {
			return errShort
		}
		return err
	}}
}

// stored is a value and its stored form, which the side reads back.
func stored(ctx context.Context, s *side.Side, size int) (plain, sealed []byte, err error) {
	plain = plaintext(size)
	sealed, err = s.Stored(ctx, plain, key)
	return plain, sealed, err
}
