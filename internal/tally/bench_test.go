package tally

import (
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkOperation counts as an operation does: in and out of what it is in,
// and what it was. Run it with -cpu 1,2 and compare within one run: a spot by
// chance and a shared one are what there might be instead.
func BenchmarkOperation(b *testing.B) {
	count := func(in, did *Counter, took *Histogram, at Spot) {
		in.Add(at)
		did.Add(at)
		took.Observe(at, time.Microsecond)
		in.Add(at)
	}
	for _, way := range []struct {
		name string
		spot func() Spot
	}{
		{"visit", nil},
		{"pick", Pick},
		{"chance", func() Spot { return Spot(rand.Uint32()) }},
		{"shared", func() Spot { return 0 }},
	} {
		b.Run(way.name, func(b *testing.B) {
			in, did, took := NewCounter(), NewCounter(), NewHistogram()
			for range busy {
				in.Add(0)
				did.Add(0)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if way.spot != nil {
						count(in, did, took, way.spot())
						continue
					}
					v := Begin(key)
					count(in, did, took, SpotOf(v))
					v.End()
				}
			})
		})
	}
}
