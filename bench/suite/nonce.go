package suite

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"

	"github.com/kube-atrest/atrest/bench/measure"
)

// The ways to keep nonces apart.
const (
	NonceCounter = "counter" // 4 random bytes, kept, and an 8-byte counter
	NonceRandom  = "random"  // 12 random bytes
	NonceHKDF    = "hkdf"    // a key expanded from 32 random bytes, and a random nonce
)

// nonces makes nonces and nothing else. The library's counter is its own
// affair: what is measured here is the same construction, and the case Seal
// measures the real one with all that is around it.
func nonces(_ context.Context, s *Setting) ([]measure.Contestant, error) {
	var count atomic.Uint64
	var fixed [4]byte
	var sink atomic.Uint64 // so that nothing is left out as unused
	secret := make([]byte, 32)
	ways := []struct {
		name string
		do   func() error
	}{
		{NonceCounter, func() error {
			var nonce [12]byte
			copy(nonce[:], fixed[:])
			binary.LittleEndian.PutUint64(nonce[4:], count.Add(1))
			return use(&sink, nonce[:])
		}},
		{NonceRandom, func() error {
			var nonce [12]byte
			if _, err := rand.Read(nonce[:]); err != nil {
				return err
			}
			return use(&sink, nonce[:])
		}},
		{NonceHKDF, func() error {
			var random [32 + 12]byte
			if _, err := rand.Read(random[:]); err != nil {
				return err
			}
			key, err := hkdf.Expand(sha256.New, secret, string(random[:32]), 32)
			if err != nil {
				return err
			}
			return use(&sink, key)
		}},
	}
	var all []measure.Contestant
	for _, n := range s.Goroutines {
		for _, w := range ways {
			all = append(all, &measure.Loop{
				Name: measure.Name{Case: "Nonce", Params: Goroutines(n), Side: w.name}, Goroutines: n, Do: w.do,
			})
		}
	}
	return all, nil
}

// use looks at b as far as the compiler can tell, and writes only what never is.
func use(sink *atomic.Uint64, b []byte) error {
	if binary.LittleEndian.Uint64(b) == 1<<63+1 {
		sink.Add(1)
	}
	return nil
}
