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
	// read gives the first objects of a part of the keys, and counts all of them.
	read(context.Context, part) (page, error)
}

// part is of the keys from one on and before another.
type part struct {
	from, before string
	limit        int   // of the objects; with 0 they are only counted
	most         int64 // bytes of an answer
}

// errTooMuch is the error of a store whose answer would have been larger than
// the most that was asked for.
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
	// seen is how many objects were read, of so many bytes.
	seen, seenBytes int64
	dry             int // pages in a row that brought nothing new
	// limit is how many objects a page may have: half as many after one that was
	// too much, which etcd has read and written whole, and one more after another.
	limit int
	err   error // that ended it
}

func newSearch(s store, most int, spare *atomic.Int64) *search {
	return &search{store: s, deks: newDEKs(), most: most, limit: maxPage, budget: budget{spare: spare}}
}

// values yields the first value met of each DEK among the keys from one on and
// before another. It ends when nothing more is to be read, or is worth it, and
// with the first error, which is then in err.
func (s *search) values(ctx context.Context, from, before string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		probes := []probe{s.first(from, before)}
		for len(probes) > 0 {
			answers, err := s.readAll(ctx, probes)
			for i, p := range probes { // also if that is the end: others have what is left
				s.settle(p.granted, answers[i].cost())
			}
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

// first is the first probe: one object, of which nothing is known. It is read
// even if nothing is left to spare.
func (s *search) first(from, before string) probe {
	return probe{gap: gap{after: from, before: before, limit: 1}, from: from, most: pageBytes, granted: s.grant(pageBytes)}
}

// answer is what came of a probe.
type answer struct {
	page
	tooMuch bool
}

// cost is how many bytes went over the wire, at most.
func (a answer) cost() int64 {
	if a.tooMuch {
		return window // of which so much may have been under way
	}
	return a.size() + framing
}

// readAll reads pages at once.
func (s *search) readAll(ctx context.Context, probes []probe) ([]answer, error) {
	answers := make([]answer, len(probes))
	reads, ctx := errgroup.WithContext(ctx)
	for i, p := range probes {
		reads.Go(func() (err error) {
			answers[i], err = s.read(ctx, p)
			return err
		})
	}
	return answers, reads.Wait()
}

// read reads a page. One that is too much is counted, if nobody has before.
func (s *search) read(ctx context.Context, p probe) (answer, error) {
	read, err := s.store.read(ctx, p.part())
	if !errors.Is(err, errTooMuch) {
		return answer{page: read}, err
	}
	if p.count > 0 {
		return answer{page{count: p.count}, true}, nil
	}
	read, err = s.store.read(ctx, part{from: p.from, before: p.before, most: pageBytes})
	return answer{page{count: read.count}, true}, err
}

// take yields what is new in a page, and notes what is left to be read around it.
func (s *search) take(p probe, read answer, yield func([]byte) bool) bool {
	if read.tooMuch {
		s.limit = max(1, min(s.limit, p.limit)/2)
		if s.seen == 0 {
			s.gaps = append(s.gaps, p.larger(read.count)...)
		} else {
			s.gaps = append(s.gaps, p.past()...)
		}
		return true
	}
	s.limit = min(s.limit+1, maxPage)
	s.seen, s.seenBytes = s.seen+int64(len(read.objects)), s.seenBytes+read.size()
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

// heaviest are the next probes: in the gaps that are most worth it, each with
// what it may cost. A gap of objects that cost more than is left is passed over.
func (s *search) heaviest() []probe {
	s.expect(s.unread())
	if s.dry >= patience || len(s.met) >= s.most {
		return nil
	}
	var probes []probe
	for len(s.gaps) > 0 && len(probes) < abreast {
		g := s.takeHeaviest()
		g.limit = int(max(1, min(int64(g.limit), int64(s.limit), pageBytes/g.size)))
		granted := s.grant(g.mostBytes())
		if granted < g.size+framing {
			s.giveBack(granted)
			if len(probes) > 0 {
				s.gaps = append(s.gaps, g) // there is more when these are settled
				break
			}
			continue
		}
		g.limit = int(min(int64(g.limit), (granted-framing)/g.size))
		p := g.probe()
		p.granted, p.most = granted, granted
		probes = append(probes, p)
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

// unread is about how many bytes are in the gaps: as many as objects nearby speak
// for, and no more than the average does, so that a few large ones do not make
// all of them large.
func (s *search) unread() int64 {
	count, nearby := int64(0), int64(0)
	for _, g := range s.gaps {
		count += g.count
		nearby += g.count * g.size
	}
	if s.seen == 0 {
		return nearby
	}
	return min(nearby, count*(s.seenBytes/s.seen+1))
}
