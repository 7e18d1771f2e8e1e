package suite

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/kube-atrest/atrest/bench/measure"
	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/envelope"
)

// Units of the cold cases.
const (
	DecryptCalls = "decrypt-calls"
	EncryptCalls = "encrypt-calls"
	StatusCalls  = "status-calls"
	ObjectsRead  = "objects"
)

// Readers is the parameter of a number of readers.
func Readers(n int) string { return fmt.Sprintf("readers=%d", n) }

// coldReaders has many goroutines read one object whose DEK is not known, with
// the plugin that takes its time.
func coldReaders(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	objects, err := s.corpus(ctx, envelope.Counter)
	if err != nil {
		return nil, err
	}
	var all []measure.Contestant
	for _, name := range []string{AtrestCounter, KubeCounter} {
		all = append(all, &measure.Trial{
			Name: measure.Name{Case: "ColdReaders", Params: Readers(s.Readers), Side: name},
			Do: func(ctx context.Context) ([]measure.Point, error) {
				return s.readAtOnce(ctx, name, objects[0])
			},
		})
	}
	return all, nil
}

func (s *Setting) readAtOnce(ctx context.Context, name string, o object) ([]measure.Point, error) {
	reader, err := s.fresh(ctx, name, s.slow)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	before := s.slow.Calls.Decrypt.Load()
	errs := make(chan error, s.Readers)
	var ended sync.WaitGroup
	start := time.Now()
	for range s.Readers {
		ended.Go(func() {
			if err := read(ctx, reader, o); err != nil {
				errs <- err
			}
		})
	}
	ended.Wait()
	took := time.Since(start)
	close(errs)
	if err := <-errs; err != nil {
		return nil, err
	}
	return []measure.Point{{Sample: measure.Sample{N: 1, Metrics: []measure.Metric{
		{Unit: measure.NsPerOp, Value: float64(took)},
		{Unit: DecryptCalls, Value: float64(s.slow.Calls.Decrypt.Load() - before)},
	}}}}, nil
}

// coldStart starts a side and reads all objects one after another, as the LIST
// of an apiserver that starts does. A side that looks ahead in etcd while that
// goes on is shown the objects here, without etcd. The cipher has all its keys.
func coldStart(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	objects, err := s.corpus(ctx, envelope.Counter)
	if err != nil {
		return nil, err
	}
	starts := []struct {
		name    string
		objects []object
		start   func(context.Context) (*side.Side, error)
	}{
		{AtrestCounter, objects, func(ctx context.Context) (*side.Side, error) { return s.fresh(ctx, AtrestCounter, s.slow) }},
		{KubeCounter, objects, func(ctx context.Context) (*side.Side, error) { return s.fresh(ctx, KubeCounter, s.slow) }},
		{Tink, nil, func(ctx context.Context) (*side.Side, error) { return s.fresh(ctx, Tink, s.slow) }},
		{Cipher, nil, func(ctx context.Context) (*side.Side, error) { return s.side(ctx, Cipher) }},
	}
	var all []measure.Contestant
	for _, c := range starts {
		if c.objects == nil {
			if c.objects, err = s.ownCorpus(ctx, c.name); err != nil {
				return nil, err
			}
		}
		all = append(all, &measure.Trial{Name: measure.Name{Case: "ColdStart", Side: c.name}, Do: func(ctx context.Context) ([]measure.Point, error) {
			return s.readCold(ctx, c.start, c.objects)
		}})
	}
	return all, nil
}

func (s *Setting) readCold(ctx context.Context, start func(context.Context) (*side.Side, error), objects []object) ([]measure.Point, error) {
	before, began := s.slow.Calls.Decrypt.Load(), time.Now()
	reader, err := start(ctx)
	if err != nil {
		return nil, err
	}
	if reader.Name != Cipher { // which others use too
		defer reader.Close()
	}
	var ahead sync.WaitGroup
	defer ahead.Wait()
	if reader.LookAhead != nil {
		ahead.Go(func() { reader.LookAhead(ctx, storedOf(objects)) })
	}
	done := 0
	for done < len(objects) && time.Since(began) < s.Patience {
		if err := read(ctx, reader, objects[done]); err != nil {
			return nil, err
		}
		done++
	}
	took := time.Since(began)
	return []measure.Point{{Sample: measure.Sample{N: 1, Metrics: []measure.Metric{
		{Unit: measure.NsPerOp, Value: float64(took)},
		{Unit: ObjectsRead, Value: float64(done)},
		{Unit: DecryptCalls, Value: float64(s.slow.Calls.Decrypt.Load() - before)},
	}}}}, nil
}

func storedOf(objects []object) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, o := range objects {
			if !yield(o.stored) {
				return
			}
		}
	}
}
