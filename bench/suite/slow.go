package suite

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/bench/side"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/internal/measure"
)

// Units of what is done once a round.
const (
	LiveBytes    = "live-B" // what stays on the heap because of a side
	DecryptCalls = "decrypt-calls"
)

// Checkpoints is how often memory is looked at on the way.
const Checkpoints = 10

// once makes the contestants that do something once a round.
func once(name measure.Name, do func(ctx context.Context, n measure.Name, book *measure.Book) error, sides ...string) (all []measure.Contestant) {
	for _, called := range sides {
		n := name.Of(called)
		all = append(all, &measure.Once{Name: n, Do: func(ctx context.Context, book *measure.Book) error { return do(ctx, n, book) }})
	}
	return all
}

// memory writes one key again and again.
func memory(_ context.Context, s *Setting) ([]measure.Contestant, error) {
	return once(measure.Name{Case: "Memory"}, s.memoryOfWrites, side.AtrestCounter, side.AtrestSeed, side.Kube), nil
}

func (s *Setting) memoryOfWrites(ctx context.Context, n measure.Name, book *measure.Book) error {
	before := liveHeap()
	writer, err := s.lab.Start(ctx, n.Side, s.lab.Quick)
	if err != nil {
		return err
	}
	defer writer.Close()
	value, each := plaintext(kib), s.Writes/Checkpoints
	n.Params = "writes=0"
	book.Add(n, measure.Figure{Unit: LiveBytes, Value: liveHeap() - before})
	for c := range Checkpoints {
		start := time.Now()
		for range each {
			if _, err := writer.TransformToStorage(ctx, value, key); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		took := float64(time.Since(start)) / float64(each) // with the collections that its garbage makes needed
		n.Params = fmt.Sprintf("writes=%d", each*(c+1))
		book.Add(n, measure.Figure{Unit: LiveBytes, Value: liveHeap() - before}, measure.Figure{Unit: measure.NsPerOp, Value: took})
	}
	return nil
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

// object is a stored value and its etcd key.
type object struct {
	at     value.Context
	stored []byte
}

// corpus is stored values under DEKs, in an order that has nothing to do with the DEKs,
// as in a store that was written over months. All sides with a KMS read them, and the
// cipher those that it stores itself.
func (s *Setting) corpus(ctx context.Context, objects, deks int, floor *side.Side) ([]object, error) {
	seal, end, err := s.lab.Quick.Sealer(ctx, side.KMSName, envelope.Counter, (objects+deks-1)/deks)
	if err != nil {
		return nil, err
	}
	defer end()
	all := make([]object, objects)
	for i := range all {
		called := fmt.Sprintf("object-%06d", i)
		all[i].at = side.Key(called)
		if floor != nil {
			all[i].stored, err = floor.Stored(ctx, plaintext(kib), all[i].at)
		} else {
			all[i].stored, err = seal(ctx, plaintext(kib), string(all[i].at.AuthenticatedData()))
		}
		if err != nil {
			return nil, err
		}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(objects, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}

// readAll reads objects one after another, as the LIST of an apiserver does. A side that
// looks ahead in etcd while that goes on is shown the objects here, without etcd.
func readAll(ctx context.Context, reader *side.Side, objects []object) error {
	var ahead sync.WaitGroup
	defer ahead.Wait()
	if reader.LookAhead != nil {
		ahead.Go(func() { reader.LookAhead(ctx, storedOf(objects)) })
	}
	for _, o := range objects {
		out, _, err := reader.TransformFromStorage(ctx, o.stored, o.at)
		if err == nil && len(out) != kib {
			err = errShort
		}
		if err != nil {
			return fmt.Errorf("%s: %w", reader.Name, err)
		}
	}
	return nil
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

// coldStart starts a side and reads all objects. The cipher has all its keys.
func coldStart(ctx context.Context, s *Setting) ([]measure.Contestant, error) {
	floor, err := s.side(ctx, side.Cipher)
	if err != nil {
		return nil, err
	}
	objects, err := s.corpus(ctx, s.Objects, s.DEKs, nil)
	if err != nil {
		return nil, err
	}
	own, err := s.corpus(ctx, s.Objects, s.DEKs, floor)
	name := measure.Name{Case: "ColdStart", Params: fmt.Sprintf("objects=%d/deks=%d", s.Objects, s.DEKs)}
	return once(name, func(ctx context.Context, n measure.Name, book *measure.Book) (err error) {
		reader, read, before, began := floor, own, s.lab.Slow.Decrypts.Load(), time.Now()
		if n.Side != side.Cipher {
			if reader, err = s.lab.Start(ctx, n.Side, s.lab.Slow); err != nil {
				return err
			}
			defer reader.Close()
			read = objects
		}
		if err := readAll(ctx, reader, read); err != nil {
			return err
		}
		book.Add(n, measure.Figure{Unit: measure.NsPerOp, Value: float64(time.Since(began))},
			measure.Figure{Unit: DecryptCalls, Value: float64(s.lab.Slow.Decrypts.Load() - before)})
		return nil
	}, side.Cipher, side.AtrestCounter, side.Kube), err
}

// manyDEKs reads an object of each of many DEKs, and then all of them again.
func manyDEKs(ctx context.Context, s *Setting) (all []measure.Contestant, err error) {
	for _, deks := range s.ManyDEKs {
		objects, err := s.corpus(ctx, deks, deks, nil)
		if err != nil {
			return nil, err
		}
		name := measure.Name{Case: "ManyDEKs", Params: fmt.Sprintf("deks=%d", deks)}
		all = append(all, once(name, func(ctx context.Context, n measure.Name, book *measure.Book) error {
			reader, err := s.lab.Start(ctx, n.Side, s.lab.Quick)
			if err != nil {
				return err
			}
			defer reader.Close()
			reader.LookAhead = nil // which is for a start
			if err := readAll(ctx, reader, objects); err != nil {
				return err
			}
			before, began := s.lab.Quick.Decrypts.Load(), time.Now()
			err = readAll(ctx, reader, objects)
			book.Add(n, measure.Figure{Unit: measure.NsPerOp, Value: float64(time.Since(began)) / float64(deks)},
				measure.Figure{Unit: DecryptCalls, Value: float64(s.lab.Quick.Decrypts.Load() - before)})
			return err
		}, side.AtrestCounter, side.Kube)...)
	}
	return all, nil
}
