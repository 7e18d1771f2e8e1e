package suite

import (
	"context"
	"strings"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/side"
)

// kmsNames are all sides that keep a value with a KMS plugin, the floors first.
var kmsNames = []string{
	Cipher, SeedCipher, AtrestCounter, AtrestSeed,
	KubeCounter, KubeCounterFixed, KubeSeed, KubeSeedFixed, Tink,
}

// makeLoop makes the loop of a side for values of a size.
type makeLoop func(ctx context.Context, name measure.Name, s *side.Side, size int) (*measure.Loop, error)

func writeLoop(ctx context.Context, name measure.Name, s *side.Side, size int) (*measure.Loop, error) {
	plain, _, err := stored(ctx, s, size)
	return writing(ctx, name, s, plain), err
}

func readLoop(ctx context.Context, name measure.Name, s *side.Side, size int) (*measure.Loop, error) {
	_, sealed, err := stored(ctx, s, size)
	return reading(ctx, name, s, size, sealed), err
}

func writes(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	return s.bySize(ctx, "Write", writeLoop)
}

func reads(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	return s.bySize(ctx, "Read", readLoop)
}

func (s *Setting) bySize(ctx context.Context, name string, loop makeLoop) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, size := range s.Sizes {
		found, err := s.loops(ctx, measure.Name{Case: name, Params: Size(size)}, size, loop, kmsNames...)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// loops makes the loops of some sides.
func (s *Setting) loops(ctx context.Context, name measure.Name, size int, loop makeLoop, sides ...string) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, sideName := range sides {
		made, err := s.side(ctx, sideName)
		if err != nil {
			return nil, err
		}
		name.Side = sideName
		l, err := loop(ctx, name, made, size)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// unseenReads reads what kube-apiserver's side has stored, with all sides: two
// values of one etcd key in turn. kube-apiserver keeps an expanded key for each
// etcd key, so that each of its reads finds that of the other value; and the
// library reads under a DEK that is not the one it writes with.
func unseenReads(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, group := range [][]string{
		{KubeCounterFixed, KubeCounter, AtrestCounter, Cipher},
		{KubeSeedFixed, KubeSeed, AtrestSeed, SeedCipher},
	} {
		found, err := s.unseen(ctx, group)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// unseen has the sides read what the first of them has stored.
func (s *Setting) unseen(ctx context.Context, sides []string) ([]measure.Contestant, error) {
	writer, err := s.side(ctx, sides[0])
	if err != nil {
		return nil, err
	}
	theirs, err := pair(ctx, writer)
	if err != nil {
		return nil, err
	}
	read := func(ctx context.Context, name measure.Name, reader *side.Side, size int) (*measure.Loop, error) {
		values := theirs
		if isFloor(reader.Name) { // it has a form of its own
			if values, err = pair(ctx, reader); err != nil {
				return nil, err
			}
		}
		return reading(ctx, name, reader, size, values...), reader.Reads(ctx, values[0], plaintext(kib), key)
	}
	return s.loops(ctx, measure.Name{Case: "ReadUnseen", Params: Size(kib)}, kib, read, sides...)
}

func isFloor(name string) bool { return strings.HasPrefix(name, Cipher) }

// pair is one value, stored twice.
func pair(ctx context.Context, s *side.Side) ([][]byte, error) {
	_, first, err := stored(ctx, s, kib)
	if err != nil {
		return nil, err
	}
	_, second, err := stored(ctx, s, kib)
	return [][]byte{first, second}, err
}

// sustained is as writes and reads of 1 KiB, but for the plan of the case:
// everybody pays for the garbage they make.
func sustained(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, op := range operations {
		found, err := s.loops(ctx, measure.Name{Case: "Sustained", Params: op.param}, kib, op.loop,
			Cipher, AtrestCounter, KubeCounter, SeedCipher, AtrestSeed, KubeSeed)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// annotated writes and reads with a plugin that gives annotations, beside the
// library without.
func annotated(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, op := range operations {
		found, err := s.loops(ctx, measure.Name{Case: "Annotated", Params: op.param}, kib, op.loop,
			AtrestCounter, Annotated(AtrestCounter), Annotated(KubeCounter),
			AtrestSeed, Annotated(AtrestSeed), Annotated(KubeSeed))
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// The parameters of writing and reading where a case has both.
const (
	OpWrite = "op=write"
	OpRead  = "op=read"
)

var operations = []struct {
	param string
	loop  makeLoop
}{{OpWrite, writeLoop}, {OpRead, readLoop}}
