package envelope

import "slices"

// residents are the entries of a cache, and decide which of them goes for
// another when there are max. Not safe for concurrent use.
//
// When there are more DEKs than places, a list that is read again and again
// wants next the one that was used longest ago. If that one went, a single DEK
// too many would have each read of the list call the plugin. So most entries are
// settled, and newcomers, which are few, go for each other. A newcomer settles
//   - when it comes again, and its last use was later than that of a settled
//     entry, which is idle for longer than the newcomer was away, and goes;
//   - when all newcomers are in use: then the idlest settled entry goes.
//
// An entry that was used since the last 1/64 of max were admitted does not go
// unless all were. The measure of all this is not time but how many entries were
// admitted. (To weigh the time away against the time idle is the idea of LIRS;
// Jiang and Zhang, 2002.)
type residents struct {
	max                int
	settled, newcomers []*entry
	left               departures
	kept               func(*entry) bool // which go last; nil for none
}

// admit takes e in, and returns the entry that goes for it; nil if there is
// room.
func (r *residents) admit(e *entry) *entry {
	if r.len() < r.max {
		r.settled = append(r.settled, e)
		return nil
	}
	last := r.last()
	settled, newcomer := idlest(r.settled, last), idlest(r.newcomers, last)
	if settled == nil && newcomer == nil {
		settled, newcomer = idlest(r.settled, nil), idlest(r.newcomers, nil)
	}
	settles := settled != nil && r.left.of(e) > (*settled).used.Load()
	goes := settled
	if settled == nil || newcomer != nil && !r.recent(*newcomer, e) && (!settles || r.recent(*settled, e)) {
		goes = newcomer
	}
	gone := *goes
	switch {
	case goes == newcomer, settles:
		*goes = e
	case newcomer != nil && len(r.newcomers) > r.few():
		*goes, *newcomer = *newcomer, e
	default: // there may be one newcomer more
		r.settled = slices.DeleteFunc(r.settled, func(x *entry) bool { return x == gone })
		r.newcomers = append(r.newcomers, e)
	}
	r.left.note(gone, r.max)
	return gone
}

// few is how many newcomers there are beside the latest, and what recent means.
func (r *residents) few() int { return max(r.max/64, 1) }

// recent reports whether an entry was used since the last few were admitted
// before e, which is new.
func (r *residents) recent(x, e *entry) bool {
	return x.used.Load()+uint64(r.few()) >= e.used.Load()
}

// last says which entries go last: those that are kept, as long as they leave an eighth
// of the places to others, and otherwise the others.
func (r *residents) last() func(*entry) bool {
	if r.kept == nil {
		return nil
	}
	n := 0
	for _, e := range r.all() {
		if r.kept(e) {
			n++
		}
	}
	if n > r.max-max(r.max/8, 1) {
		return func(e *entry) bool { return !r.kept(e) }
	}
	return r.kept
}

// idlest is the place of the entry that was not used for longest, but for those that
// go last; nil if there is none. It looks at all, which is little beside the call that
// a new entry comes from.
func idlest(entries []*entry, last func(*entry) bool) **entry {
	var place **entry
	for i, e := range entries {
		if last != nil && last(e) {
			continue
		}
		if place == nil || e.used.Load() < (*place).used.Load() {
			place = &entries[i]
		}
	}
	return place
}

// evict takes out the entries that want to be, and returns them.
func (r *residents) evict(wanted func(*entry) bool) []*entry {
	var gone []*entry
	leaves := func(e *entry) bool {
		if !wanted(e) {
			return false
		}
		gone = append(gone, e)
		return true
	}
	r.settled = slices.DeleteFunc(r.settled, leaves)
	r.newcomers = slices.DeleteFunc(r.newcomers, leaves)
	return gone
}

func (r *residents) len() int      { return len(r.settled) + len(r.newcomers) }
func (r *residents) all() []*entry { return slices.Concat(r.settled, r.newcomers) }

// departures tell when the entries that went last were used, by their hash: some
// of the latest, no more than twice max.
type departures struct{ latest, before map[uint64]uint64 }

// of is when an entry was used before it went, 0 if that is not known.
func (d *departures) of(e *entry) uint64 { return max(d.latest[e.hash], d.before[e.hash]) }

func (d *departures) note(e *entry, max int) {
	if d.latest == nil || len(d.latest) >= max {
		d.latest, d.before = map[uint64]uint64{}, d.latest
	}
	d.latest[e.hash] = e.used.Load()
}
