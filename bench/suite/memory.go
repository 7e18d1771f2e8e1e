package suite

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/envelope"
)

// LiveBytes is the unit of what stays on the heap because of a side.
const LiveBytes = "live-B"

// Checkpoints is how often memory is looked at on the way.
const Checkpoints = 10

// Writes is the parameter of a number of writes.
func Writes(n int) string { return fmt.Sprintf("writes=%d", n) }

// liveWrites writes one key again and again.
func liveWrites(_ context.Context, s *Setting) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, name := range []string{AtrestCounter, AtrestSeed, KubeCounter, KubeSeed} {
		all = append(all, &measure.Trial{Name: measure.Name{Case: "LiveWrites", Side: name}, Do: func(ctx context.Context) ([]measure.Point, error) {
			return s.memoryOfWrites(ctx, name)
		}})
	}
	return all, nil
}

func (s *Setting) memoryOfWrites(ctx context.Context, name string) ([]measure.Point, error) {
	before := liveHeap()
	writer, err := s.fresh(ctx, name, s.plugin)
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	value := plaintext(kib)
	points := []measure.Point{live(Writes(0), 1, before)}
	n := s.Writes / Checkpoints
	for c := range Checkpoints {
		start := time.Now()
		for range n {
			if _, err := writer.TransformToStorage(ctx, value, key); err != nil {
				return nil, err
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		took := float64(time.Since(start)) / float64(n) // with the collections that its garbage makes needed
		p := live(Writes(n*(c+1)), n, before)
		p.Metrics = append(p.Metrics, measure.Metric{Unit: measure.NsPerOp, Value: took})
		points = append(points, p)
	}
	return points, nil
}

func live(param string, n int, before float64) measure.Point {
	return measure.Point{Param: param, Sample: measure.Sample{N: n, Metrics: []measure.Metric{{Unit: LiveBytes, Value: liveHeap() - before}}}}
}

// liveHeap is how many bytes of the heap are reachable. The second collection
// takes what finalizers and pools let go of in the first.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// The points at which the memory of reading is looked at.
const (
	AfterDEKs    = "read=one-of-each-DEK"
	AfterObjects = "read=all"
)

// liveObjects reads one object of each DEK, then all.
func liveObjects(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	var all []measure.Contestant
	for _, c := range []struct {
		mode  envelope.WriteMode
		sides []string
	}{
		{envelope.Counter, []string{AtrestCounter, KubeCounter}},
		{envelope.Seed, []string{AtrestSeed, KubeSeed}},
	} {
		objects, err := s.corpus(ctx, c.mode)
		if err != nil {
			return nil, err
		}
		for _, name := range c.sides {
			all = append(all, &measure.Trial{Name: measure.Name{Case: "LiveObjects", Side: name}, Do: func(ctx context.Context) ([]measure.Point, error) {
				return s.memoryOfReads(ctx, name, objects)
			}})
		}
	}
	return all, nil
}

func (s *Setting) memoryOfReads(ctx context.Context, name string, objects []object) ([]measure.Point, error) {
	before := liveHeap()
	reader, err := s.fresh(ctx, name, s.plugin)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	if err := readOneOfEach(ctx, reader, objects); err != nil {
		return nil, err
	}
	points := []measure.Point{live(AfterDEKs, s.DEKs, before)}
	for _, o := range objects {
		if err := read(ctx, reader, o); err != nil {
			return nil, err
		}
	}
	return append(points, live(AfterObjects, len(objects), before)), nil
}

// readOneOfEach reads one object of each DEK.
func readOneOfEach(ctx context.Context, reader *side.Side, objects []object) error {
	seen := map[int]bool{}
	for _, o := range objects {
		if seen[o.dek] {
			continue
		}
		seen[o.dek] = true
		if err := read(ctx, reader, o); err != nil {
			return err
		}
	}
	return nil
}
