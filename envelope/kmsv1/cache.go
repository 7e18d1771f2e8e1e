package kmsv1

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxKey is the length in bytes up to which a wrapped DEK is itself the key of
// its entry. A longer one is known by its SHA-256, so that the size of the
// cache follows from its number of entries.
const maxKey = 1 << 10

// entry is a DEK in a ring, ordered from the latest used to the earliest.
type entry struct {
	key        string
	dek        *dek
	since      time.Time // when it was unwrapped or made
	prev, next *entry
}

// cache holds the unwrapped DEKs of one provider, found by what the plugin made
// of them. When it is full the entry goes that was used least recently. There is
// one per object here, not one per key of the plugin: a cache smaller than the
// number of objects makes each listing ask the plugin for each of them.
//
// A look-up takes a lock for some 50 ns and allocates nothing. Safe for
// concurrent use.
type cache struct {
	max int // none are kept if it is not positive

	mu    sync.Mutex
	byKey map[string]*entry
	ring  entry // its next is the latest, its prev the earliest
}

func newCache(max int) *cache {
	c := &cache{max: max, byKey: map[string]*entry{}}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

// off reports whether nothing is ever kept.
func (c *cache) off() bool { return c.max <= 0 }

// find gives the DEK of a wrapped one, nil when it is not known.
func (c *cache) find(wrapped []byte) *dek {
	if c.off() {
		return nil
	}
	if len(wrapped) > maxKey {
		sum := sha256.Sum256(wrapped)
		wrapped = sum[:]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byKey[string(wrapped)]
	if e == nil {
		return nil
	}
	c.toFront(e)
	return e.dek
}

// add remembers a DEK under what the plugin made of it, which is copied. If it
// is known already, what is known stays.
func (c *cache) add(wrapped []byte, d *dek, now time.Time) {
	if c.off() {
		return
	}
	if len(wrapped) > maxKey {
		sum := sha256.Sum256(wrapped)
		wrapped = sum[:]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[string(wrapped)] != nil {
		return
	}
	if len(c.byKey) == c.max {
		c.drop(c.ring.prev)
	}
	e := &entry{key: string(wrapped), dek: d, since: now}
	c.byKey[e.key] = e
	c.link(e)
}

// forget drops a DEK, if it is held.
func (c *cache) forget(d *dek) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.byKey {
		if e.dek == d {
			c.drop(e)
		}
	}
}

// dropBefore drops the DEKs that were unwrapped or made before a time, and tells
// whether there were any.
func (c *cache) dropBefore(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := len(c.byKey)
	for _, e := range c.byKey {
		if e.since.Before(t) {
			c.drop(e)
		}
	}
	return len(c.byKey) < had
}

// len is how many entries there are.
func (c *cache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byKey)
}

// fill is which part of the cache is in use, from 0 to 1.
func (c *cache) fill() float64 { return float64(c.len()) / float64(max(c.max, 1)) }

func (c *cache) drop(e *entry) {
	e.unlink()
	delete(c.byKey, e.key)
}

func (c *cache) toFront(e *entry) {
	if c.ring.next != e {
		e.unlink()
		c.link(e)
	}
}

func (c *cache) link(e *entry) {
	e.prev, e.next = &c.ring, c.ring.next
	e.prev.next, e.next.prev = e, e
}

func (e *entry) unlink() { e.prev.next, e.next.prev = e.next, e.prev }
