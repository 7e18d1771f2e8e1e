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

// operation makes what is repeated with a value.
type operation struct {
	name string
	make func(ctx context.Context, s *Setting, user *side.Side, value []byte) (func() error, error)
}

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

// Loops are the contestants of a case that repeats something. Where values are of 1 KiB
// among others there stands, for reference, kube-apiserver with the same kind of key.
func (c Case) Loops(ctx context.Context, s *Setting) (all []*measure.Loop, err error) {
	sizes, goroutines := c.sizes, []int{1}
	if sizes == nil {
		sizes = s.Sizes
	}
	if c.parallel {
		goroutines = Goroutines()
	}
	for _, op := range c.do {
		for _, size := range sizes {
			for _, n := range goroutines {
				sides := c.sides
				if c.sizes == nil && size == kib {
					sides = append(slices.Clip(sides), side.KubeDEK)
				}
				for _, called := range sides {
					l := &measure.Loop{Name: measure.Name{Case: c.Name, Params: c.params(op, size, n), Side: called}, Goroutines: n}
					user, err := s.side(ctx, called)
					if err == nil {
						l.Do, err = op.make(ctx, s, user, plaintext(size))
					}
					if err != nil {
						return nil, err
					}
					all = append(all, l)
				}
			}
		}
	}
	return all, nil
}

// params are what differs within the case.
func (c Case) params(op operation, size, goroutines int) string {
	var all []string
	if len(c.do) > 1 {
		all = append(all, "op="+op.name)
	}
	if c.sizes == nil {
		all = append(all, fmt.Sprintf("size=%d", size))
	}
	if c.parallel {
		all = append(all, fmt.Sprintf("goroutines=%d", goroutines))
	}
	return strings.Join(all, "/")
}

// addGain adds how much more is done by the goroutines of a loop than by one.
func addGain(book *measure.Book, l *measure.Loop) {
	one := l.Name
	one.Params = strings.Replace(one.Params, fmt.Sprintf("goroutines=%d", l.Goroutines), "goroutines=1", 1)
	for _, gain := range measure.Divide(book.Values(one, measure.NsPerOp), book.Values(l.Name, measure.NsPerOp)) {
		book.Add(l.Name, measure.Figure{Unit: Gain, Value: gain})
	}
}
