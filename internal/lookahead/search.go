package lookahead

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

const (
	// abreast is how many pages of a resource are read at once.
	abreast = 4
	// A page has no more objects than maxPage, and no fewer than minPage if that is
	// not too much.
	minPage, maxPage = 2, 64
	// pageBytes is what a page has at most, if its objects are as large as those nearby.
	pageBytes = 64 << 10
	// patience is how many pages in a row may bring nothing new.
	patience = 256
)

// store is where the objects are. Its methods may be called at once.
type store interface {
	// read gives the first objects from a key on and before another, no more than limit.
	read(ctx context.Context, from, before string, limit int) (page, error)
}

// errTooMuch is the error of a store whose answer would have been too large.
var errTooMuch = errors.New("the page is too large")

// page is an answer of a store.
type page struct {
	objects []object
	count   int64 // of all keys that were asked for
}

type object struct {
	key   string
	value []byte
}

// framing is about how many bytes go over the wire beside a key and a value, and
// beside the objects of a page.
const framing = 32

// size is how many bytes the objects take, more or less.
func (p page) size() int64 {
	n := int64(0)
	for _, o := range p.objects {
		n += int64(len(o.key) + len(o.value) + framing)
	}
	return n
}

// search looks for DEKs among the objects of one resource.
type search struct {
	store store
	budget
	deks
	most int // DEKs
	gaps []gap
	dry  int   // pages in a row that brought nothing new
	err  error // that ended it
}

func newSearch(s store, most int, spare *atomic.Int64) *search {
	return &search{store: s, deks: newDEKs(), most: most, budget: budget{spare: spare}}
}

// values yields the first value met of each DEK among the keys from one on and
// before another. It ends when nothing more is to be read, or is worth it, and
// with the first error, which is then in err.
func (s *search) values(ctx context.Context, from, before string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		probes := []probe{{gap: gap{before: before, limit: 1}, from: from}}
		for len(probes) > 0 {
			answers, err := s.readAll(ctx, probes)
			if s.err = err; err != nil {
				return
			}
			for i, read := range answers {
				if !s.take(probes[i], read, yield) {
					return
				}
			}
			probes = s.heaviest()
		}
	}
}

// answer is what came of a probe.
type answer struct {
	page
	tooMuch bool
}

// readAll reads pages at once.
func (s *search) readAll(ctx context.Context, probes []probe) ([]answer, error) {
	answers := make([]answer, len(probes))
	reads, ctx := errgroup.WithContext(ctx)
	for i, p := range probes {
		reads.Go(func() (err error) {
			answers[i].page, err = s.store.read(ctx, p.from, p.before, p.limit)
			if answers[i].tooMuch = errors.Is(err, errTooMuch); answers[i].tooMuch {
				return nil
			}
			return err
		})
	}
	return answers, reads.Wait()
}

// take yields what is new in a page, and notes what is left to be read around it.
func (s *search) take(p probe, read answer, yield func([]byte) bool) bool {
	if read.tooMuch {
		s.spend(pageBytes) // of which so much may be under way
		if p.limit > 1 {
			p.size = maxAnswer // one object will do
			s.gaps = append(s.gaps, p.gap)
		}
		return true
	}
	s.spend(read.size() + framing)
	fresh := 0
	for _, o := range read.objects {
		if s.meet(o.value) {
			fresh++
			if !yield(o.value) {
				return false
			}
		}
	}
	switch {
	case fresh > 0:
		s.dry = 0
	case len(read.objects) > 0:
		s.dry++
	}
	s.gaps = append(s.gaps, p.parts(read.page, fresh)...)
	return true
}

// heaviest are the next probes: in the gaps that are most worth it.
func (s *search) heaviest() []probe {
	left := s.left(s.unread())
	if left <= 0 || s.dry >= patience || len(s.met) >= s.most {
		return nil
	}
	var probes []probe
	for len(s.gaps) > 0 && len(probes) < abreast {
		g := s.takeHeaviest()
		g.limit = int(max(1, min(int64(g.limit), min(pageBytes, left/abreast)/g.size)))
		probes = append(probes, g.probe())
	}
	return probes
}

func (s *search) takeHeaviest() gap {
	heaviest, last := 0, len(s.gaps)-1
	for i, g := range s.gaps {
		if g.weight() > s.gaps[heaviest].weight() {
			heaviest = i
		}
	}
	g := s.gaps[heaviest]
	s.gaps[heaviest] = s.gaps[last]
	s.gaps = s.gaps[:last]
	return g
}

// unread is about how many bytes are in the gaps.
func (s *search) unread() int64 {
	n := int64(0)
	for _, g := range s.gaps {
		n += g.count * g.size
	}
	return n
}
