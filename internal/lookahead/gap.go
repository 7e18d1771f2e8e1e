package lookahead

import "slices"

// gap is a part of the keys of which none was read yet: those after one key and
// before another. It has some, unless they were deleted meanwhile.
type gap struct {
	after, before string
	count         int64 // of its keys
	size          int64 // of an object nearby, in bytes
	limit         int   // of the objects of the next page
	dry           int   // pages in a row that brought nothing new, here or in what this was a part of
	// Only few of the keys begin with so many bytes of after; 0 if that is not known.
	branch int
}

// few is which part of the keys is not many.
const few = 3

// weight is what a gap is worth looking into: the more keys it has, and the less
// often that brought nothing, the more.
func (g gap) weight() float64 { return float64(g.count) / float64(1+g.dry) }

// mostBytes is what a page of it may have: some more than is likely.
func (g gap) mostBytes() int64 {
	return min(maxAnswer, max(pageBytes, 2*g.size*int64(g.limit)))
}

// probe is a page to be read: of the keys in a gap, from one of them on.
type probe struct {
	gap
	from    string
	depth   int   // how many bytes of the gap's after the keys before from begin with; 0 is not known
	most    int64 // bytes that the page may have
	granted int64 // of them, by the budget
}

func (p probe) part() part { return part{p.from, p.before, p.limit, p.most} }

// larger is the gap of so many objects after the first of all was too much: it is
// asked for one that may be larger. All are as large, for all that is known.
func (p probe) larger(count int64) []gap {
	if p.most >= maxAnswer {
		return nil
	}
	g := p.gap
	g.count, g.size = count, p.most
	return []gap{g}
}

// past are the parts of the gap after a page was too much: it is asked for one
// object, and if that is too much, for others. How many are before that is not
// known.
func (p probe) past() []gap {
	if p.limit > 1 {
		g := p.gap
		g.limit = 1
		return []gap{g}
	}
	left, right := p.gap, p.gap
	left.before, right.after, right.branch = p.from, p.from, 0
	left.count, right.count = p.count/2, (p.count-1)/2
	if p.from == next(p.after) {
		left.count = 0
	}
	return slices.DeleteFunc([]gap{left, right}, func(g gap) bool { return g.count <= 0 })
}

// probe says where a gap is to be parted. etcd finds a key by its name, and not
// by how many are before it, so the middle is guessed: first, how many bytes of
// their names the keys have in common; all those of a namespace share its name,
// and more. Then from there on halfway between the ends.
func (g gap) probe() probe {
	at := probe{gap: g, from: next(g.after)}
	if g.count <= int64(g.limit) {
		return at // all of it
	}
	shared, branch := surelyShared(g.after, g.before), g.branch
	if branch <= shared || branch > len(g.after) {
		branch = len(g.after)
	}
	middle, depth := "", (shared+branch)/2
	if branch-shared > 1 {
		middle = following(g.after[:depth])
	} else {
		middle, depth = halfway(g.after, g.before, shared), 0
	}
	if at.from < middle && middle < g.before {
		at.from, at.depth = middle, depth
	}
	return at
}

// parts are what is left of the gap: before the page, and behind it.
func (p probe) parts(read page, fresh int) []gap {
	p.learn(fresh)
	left, right := p.gap, p.gap
	left.before, left.count = p.from, p.count-read.count
	if p.from == next(p.after) {
		left.count = 0
	}
	right.count = 0
	if n := len(read.objects); n > 0 {
		right.after, right.count, right.size = read.objects[n-1].key, read.count-int64(n), read.size()/int64(n)
	}
	if left.count < p.count/few {
		right.branch = p.depth
	}
	return slices.DeleteFunc([]gap{left, right}, func(g gap) bool { return g.count <= 0 })
}

// learn has the next page be as large as one was of use.
func (g *gap) learn(fresh int) {
	g.limit = min(max(2*fresh, minPage), maxPage)
	g.dry++
	if fresh > 0 {
		g.dry = 0
	}
}
