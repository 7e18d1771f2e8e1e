package suite

import (
	"context"
	"fmt"
	"math/rand/v2"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/envelope"
)

// object is a stored value, its etcd key, and which DEK it is under.
type object struct {
	at     value.Context
	stored []byte
	dek    int
}

// corpus is Objects stored values under DEKs, in an order that has nothing to
// do with the DEKs, as in a store that was written over months. Each DEK is of
// another start of the library; kube-apiserver reads them all the same.
func (s *Setting) corpus(ctx context.Context, mode envelope.WriteMode) ([]object, error) {
	if made := s.corpora[mode]; made != nil {
		return made, nil
	}
	var all []object
	name := AtrestCounter
	if mode == envelope.Seed {
		name = AtrestSeed
	}
	for d := range s.DEKs {
		writer, err := s.fresh(ctx, name, s.plugin)
		if err != nil {
			return nil, err
		}
		for range s.Objects / s.DEKs {
			o, err := newObject(ctx, writer, len(all))
			if err != nil {
				return nil, err
			}
			o.dek = d
			all = append(all, o)
		}
		writer.Close()
	}
	shuffle(all)
	s.corpora[mode] = all
	return all, nil
}

func newObject(ctx context.Context, writer *side.Side, i int) (object, error) {
	at := side.Key(fmt.Sprintf("object-%06d", i))
	stored, err := writer.Stored(ctx, plaintext(kib), at)
	return object{at: at, stored: stored}, err
}

// shuffle is the same each time.
func shuffle(objects []object) {
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
}

// ownCorpus is as many values in the form of a side that reads no other.
func (s *Setting) ownCorpus(ctx context.Context, name string) ([]object, error) {
	writer, err := s.side(ctx, name)
	if err != nil {
		return nil, err
	}
	var all []object
	for i := range s.Objects {
		o, err := newObject(ctx, writer, i)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	shuffle(all)
	return all, nil
}

// read reads one object.
func read(ctx context.Context, s *side.Side, o object) error {
	out, _, err := s.TransformFromStorage(ctx, o.stored, o.at)
	if err == nil && len(out) != kib {
		return errShort
	}
	return err
}
