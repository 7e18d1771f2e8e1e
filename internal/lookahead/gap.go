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

// probe is a page to be read: of the keys in a gap, from one of them on.
type probe struct {
	gap
	from  string
	depth int // how many bytes of the gap's after the keys before from begin with; 0 is not known
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
