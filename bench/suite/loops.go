package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/internal/measure"
)

// kib is the size of a value where size is not what is looked at.
const kib = 1 << 10

// Gain is the unit of how much more is done by some goroutines than by one.
const Gain = "gain"

// key is the etcd key of a value where it does not matter.
var key = side.Key("bench-0123456789")

// plaintext is a value of a size, the same each time.
func plaintext(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}

// An operation makes what is repeated with a value.
type operation func(ctx context.Context, s *Setting, user *side.Side, value []byte) (func() error, error)

func write(ctx context.Context, _ *Setting, user *side.Side, value []byte) (func() error, error) {
	_, err := user.Stored(ctx, value, key)
	return func() error {
		_, err := user.TransformToStorage(ctx, value, key)
		return err
	}, err
}

func read(ctx context.Context, _ *Setting, user *side.Side, value []byte) (func() error, error) {
	stored, err := user.Stored(ctx, value, key)
	return reading(ctx, user, len(value), stored), err
}

// older reads what the same side stored before it was started again: everything of a
// server that has just started. It reads two values of one etcd key in turn, because
// kube-apiserver keeps an expanded key for each etcd key: each of its reads finds that of
// the other value, as the first read of a value does.
func older(ctx context.Context, s *Setting, user *side.Side, value []byte) (func() error, error) {
	earlier, err := s.lab.Start(ctx, user.Name, s.lab.Quick)
	if err != nil {
		return nil, err
	}
	defer earlier.Close()
	var values [2][]byte
	for i := range values {
		if values[i], err = earlier.Stored(ctx, value, key); err != nil {
			return nil, err
		}
		if err = user.Reads(ctx, values[i], value, key); err != nil {
			return nil, err
		}
	}
	return reading(ctx, user, len(value), values[:]...), nil
}

var errShort = errors.New("what was read is not as long as what was written")

// reading reads the values in turn. Of several values it is not for concurrent use.
func reading(ctx context.Context, user *side.Side, size int, values ...[]byte) func() error {
	next, last := 0, len(values)-1
	return func() error {
		if last > 0 {
			next = last - next
		}
		out, _, err := user.TransformFromStorage(ctx, values[next], key)
		if err == nil && len(out) != size {
			return errShort
		}
		return err
	}
}

// loops makes the loops of some sides.
func (s *Setting) loops(ctx context.Context, name measure.Name, do operation, size, goroutines int, sides []string) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, called := range sides {
		user, err := s.side(ctx, called)
		if err != nil {
			return nil, err
		}
		l := &measure.Loop{Name: name.Of(called), Goroutines: goroutines}
		if l.Do, err = do(ctx, s, user, plaintext(size)); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// bySize is a case of one operation on values of all sizes. Beside those of 1 KiB stands,
// for reference, kube-apiserver with the same kind of key.
func bySize(name string, do operation, sides []string) func(context.Context, *Setting) ([]measure.Contestant, error) {
	return func(ctx context.Context, s *Setting) (all []measure.Contestant, err error) {
		for _, size := range s.Sizes {
			compared := sides
			if size == kib {
				compared = append(slices.Clip(sides), side.KubeDEK)
			}
			found, err := s.loops(ctx, measure.Name{Case: name, Params: fmt.Sprintf("size=%d", size)}, do, size, 1, compared)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	}
}

var operations = []struct {
	param string
	do    operation
}{{"op=write", write}, {"op=read", read}}

// sustained is as writes and reads of 1 KiB, but for the plan of the case:
// everybody pays for the garbage they make.
func sustained(ctx context.Context, s *Setting) (all []measure.Contestant, err error) {
	for _, op := range operations {
		found, err := s.loops(ctx, measure.Name{Case: "Sustained", Params: op.param}, op.do, kib, 1, kms)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// scaling writes and reads by several goroutines at once. ns/op is the time that
// passes divided by all operations.
func scaling(ctx context.Context, s *Setting) (all []measure.Contestant, err error) {
	for _, op := range operations {
		for _, n := range Goroutines() {
			found, err := s.loops(ctx, measure.Name{Case: "Scaling", Params: fmt.Sprintf("%s/goroutines=%d", op.param, n)}, op.do, kib, n, kms)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
	}
	return all, nil
}

// nonces writes nothing, which leaves the nonce, the tag and the stored form: as near as
// an apiserver comes to the nonce, alone and where processors contend for it. The nonce
// with nothing around it is measured by BenchmarkNonce, in package envelope.
func nonces(ctx context.Context, s *Setting) (all []measure.Contestant, err error) {
	for _, n := range Goroutines() {
		found, err := s.loops(ctx, measure.Name{Case: "Nonce", Params: fmt.Sprintf("goroutines=%d", n)}, write, 0, n, append(slices.Clip(kms), side.CipherRandom))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// addGain adds how much more is done by the goroutines of a loop than by one.
func addGain(book *measure.Book, l *measure.Loop) {
	one := l.Name
	one.Params = strings.Replace(one.Params, fmt.Sprintf("goroutines=%d", l.Goroutines), "goroutines=1", 1)
	for _, gain := range measure.Divide(book.Values(one, measure.NsPerOp), book.Values(l.Name, measure.NsPerOp)) {
		book.Add(l.Name, measure.Figure{Unit: Gain, Value: gain})
	}
}
