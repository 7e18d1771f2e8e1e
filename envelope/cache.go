package envelope

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/internal/stored"
)

// DefaultMaxDEKs is how many unwrapped DEKs a provider keeps, some 1.6 KiB each.
const DefaultMaxDEKs = 4096

// knownDEK is an unwrapped DEK that can open what was sealed under it.
type knownDEK struct {
	opener
	fingerprint
	keyID    string
	since    time.Time     // when it was unwrapped or made
	era      atomic.Uint32 // in which the plugin last unwrapped it
	refusals atomic.Uint32 // how often it did not, since it was called in question
	use      *keyUse
	// unanswered is set while it is one of those.
	unanswered atomic.Bool
	// proven is set when it is known to be the key that it is taken for: it was
	// made here, or has opened something.
	proven atomic.Bool
}

// entry leads from one encoding of a DEK source to its DEK. A source has a
// canonical encoding, ours; other writers order fields and annotations in
// other ways, and each way that is met becomes an entry of its own, an alias.
type entry struct {
	hash uint64
	tail []byte
	dek  *knownDEK
	// used is the cache's age when the entry was last looked up.
	used atomic.Uint64
}

// shards is a power of two. A shard is searched from one end to the other, so
// at the default bound it holds 16 entries on average.
const shards = 256

// cache holds the unwrapped DEKs of one provider, found by the encoded tail of
// a stored object. It is bounded and does not expire: an outage of the plugin
// must never cost a key that is in use. An entry goes only for another, when
// the cache is full, and which does is the business of its residents. What it
// holds depends on the number of DEKs, never on the number of objects.
//
// Look-ups take no lock and allocate nothing: they read shards that are never
// changed, only replaced. Safe for concurrent use.
type cache struct {
	seed   maphash.Seed
	shards [shards]atomic.Pointer[[]*entry]
	age    atomic.Uint64 // how many entries were ever added

	mu        sync.Mutex // held to change anything: residents, age and the shards
	residents residents
}

// newCache makes a cache of max entries; there is always room for one.
func newCache(max_ int) *cache {
	return &cache{seed: maphash.MakeSeed(), residents: residents{max: max(max_, 1)}}
}

// find gives the DEK of an encoded source, nil when it is not known.
func (c *cache) find(tail []byte) *knownDEK {
	h := maphash.Bytes(c.seed, tail)
	shard := c.shards[h%shards].Load()
	if shard == nil {
		return nil
	}
	for _, e := range *shard {
		if e.hash == h && bytes.Equal(e.tail, tail) {
			if age := c.age.Load(); e.used.Load() != age { // no write to a shared line per look-up
				e.used.Store(age)
			}
			return e.dek
		}
	}
	return nil
}

// add remembers a DEK under an encoding of its source, which is copied.
func (c *cache) add(tail []byte, dek *knownDEK) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.find(tail) != nil {
		return
	}
	e := &entry{hash: maphash.Bytes(c.seed, tail), tail: slices.Clone(tail), dek: dek}
	e.used.Store(c.age.Add(1))
	if gone := c.residents.admit(e); gone != nil {
		c.unlist(gone)
	}
	c.edit(e.hash, func(s []*entry) []*entry { return append(s, e) })
}

// unlist takes e out of its shard.
func (c *cache) unlist(e *entry) {
	c.edit(e.hash, func(s []*entry) []*entry {
		return slices.DeleteFunc(s, func(x *entry) bool { return x == e })
	})
}

// drop drops the DEKs that want to be, and returns their entries.
func (c *cache) drop(wanted func(*knownDEK) bool) []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := c.residents.evict(func(e *entry) bool { return wanted(e.dek) })
	for _, e := range gone {
		c.unlist(e)
	}
	return gone
}

// edit replaces the shard of hash by an edited copy.
func (c *cache) edit(hash uint64, change func([]*entry) []*entry) {
	var s []*entry
	if p := c.shards[hash%shards].Load(); p != nil {
		s = slices.Clone(*p)
	}
	s = change(s)
	c.shards[hash%shards].Store(&s)
}

// entries are those whose DEK is wanted.
func (c *cache) entries(wanted func(*knownDEK) bool) []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(c.residents.all(), func(e *entry) bool { return !wanted(e.dek) })
}

// deks are all that are held, each once.
func (c *cache) deks() map[*knownDEK]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	deks := make(map[*knownDEK]struct{}, c.residents.len())
	for _, e := range c.residents.all() {
		deks[e.dek] = struct{}{}
	}
	return deks
}

// len is how many entries there are.
func (c *cache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.residents.len()
}

// maxAliases is the number of annotations up to which other encodings are remembered:
// n annotations come in n! orders, and beyond a few they would drive the DEKs
// themselves out of the cache. Objects with more are found by their canonical
// encoding each time, which costs a parse and no call.
const maxAliases = 3

// findSource gives the DEK of a source that came in the encoding raw, and
// remembers raw for the next time. A nil raw is not remembered.
func (c *cache) findSource(s *stored.DEKSource, raw []byte) *knownDEK {
	canonical := s.Tail()
	dek := c.find(canonical)
	if dek != nil {
		c.alias(s, canonical, raw, dek)
	}
	return dek
}

// addSource remembers a DEK under its source's canonical encoding, and under raw.
func (c *cache) addSource(s *stored.DEKSource, raw []byte, dek *knownDEK) {
	canonical := s.Tail()
	c.add(canonical, dek)
	c.alias(s, canonical, raw, dek)
}

// alias remembers raw when it is the canonical encoding in another order. One
// of another length holds fields unknown to us, which may differ from object
// to object without end.
func (c *cache) alias(s *stored.DEKSource, canonical, raw []byte, dek *knownDEK) {
	if len(raw) == len(canonical) && len(s.Annotations) <= maxAliases {
		c.add(raw, dek)
	}
}
