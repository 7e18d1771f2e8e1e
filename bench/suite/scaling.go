package suite

import (
	"context"

	"github.com/kube-atrest/atrest/bench/measure"
)

// scaling writes and reads by several goroutines at once. ns/op is the time that
// passes divided by all operations.
func scaling(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, op := range operations {
		found, err := s.parallel(ctx, measure.Name{Case: "Scaling", Params: op.param}, kib, op.loop,
			Cipher, AtrestCounter, KubeCounter, SeedCipher, AtrestSeed, KubeSeed, Tink)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// emptyValues writes nothing, which leaves the nonce, the tag and the stored
// form: as near as the public API comes to the nonce alone.
func emptyValues(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	return s.parallel(ctx, measure.Name{Case: "Seal", Params: Size(0)}, 0, writeLoop,
		Cipher, AtrestCounter, KubeCounter, SeedCipher, AtrestSeed, KubeSeed)
}

// parallel makes the loops of some sides for each number of goroutines.
func (s *Setting) parallel(ctx context.Context, name measure.Name, size int, loop makeLoop, sides ...string) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, n := range s.Goroutines {
		found, err := s.loops(ctx, name.With(Goroutines(n)), size, loop, sides...)
		if err != nil {
			return nil, err
		}
		for _, c := range found {
			c.(*measure.Loop).Goroutines = n
		}
		all = append(all, found...)
	}
	return all, nil
}
