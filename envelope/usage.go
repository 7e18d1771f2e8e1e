package envelope

import (
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/kube-atrest/atrest/internal/tally"
)

// Use is how many values were sealed and opened under one key_id.
type Use struct{ Writes, Reads uint64 }

// Since is the use since then. Counts that are lower than then began anew.
func (u Use) Since(then Use) Use {
	if u.Writes < then.Writes || u.Reads < then.Reads {
		return u
	}
	return Use{Writes: u.Writes - then.Writes, Reads: u.Reads - then.Reads}
}

func (u Use) and(more Use) Use {
	return Use{Writes: u.Writes + more.Writes, Reads: u.Reads + more.Reads}
}

// keyUse counts the use under one key_id, whichever DEKs it is of. Every DEK
// under it holds on to it: while one may still count, it is there.
type keyUse struct{ *counts }

// counts are those of a keyUse. They outlive it until they can have been told.
type counts struct {
	reads *tally.Counter
	// Of sealing, guarded by the usage: the budgets that may still be used, and
	// what was sealed under those that are used up.
	sealed []*budget
	ended  uint64
}

// maxBudgets is how many DEKs under one key_id are counted one by one: a plugin that
// goes to and fro between two has a new one made each time.
const maxBudgets = 16

// usage is the use of a provider. Counting is without a lock, on a keyUse that
// was had before.
type usage struct {
	mu      sync.Mutex
	byKeyID map[string]*usedKey
	gone    Use // under key_ids that are no longer listed
	seen    Use // when it was last tended
	last    lastUse
}

// lastUse is when something was last read, and written.
type lastUse struct{ read, write time.Time }

// usedKey is what is known of the use of a key_id.
type usedKey struct {
	live   weak.Pointer[keyUse] // nil when no DEK under it is left
	counts *counts
	left   bool // no DEK was left when it was last tended
}

// of gives the counts of a key_id.
func (u *usage) of(keyID string) *keyUse {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.get(keyID)
}

// get is of, with mu held.
func (u *usage) get(keyID string) *keyUse {
	k, ok := u.byKeyID[keyID]
	if !ok {
		if u.byKeyID == nil {
			u.byKeyID = map[string]*usedKey{}
		}
		k = &usedKey{counts: &counts{reads: tally.NewCounter()}}
		u.byKeyID[keyID] = k
	}
	use := k.live.Value()
	if use == nil {
		use = &keyUse{k.counts}
		k.live, k.left = weak.Make(use), false
	}
	return use
}

// seals has what a DEK seals counted under a key_id. If there are many, the first of
// them that nobody writes with is counted for good.
func (u *usage) seals(keyID string, b *budget, written func(*budget) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	use := u.get(keyID)
	if len(use.sealed) >= maxBudgets {
		if i := slices.IndexFunc(use.sealed, func(b *budget) bool { return !written(b) }); i >= 0 {
			use.ended += use.sealed[i].spent()
			use.sealed = slices.Delete(use.sealed, i, i+1)
		}
	}
	use.sealed = append(use.sealed, b)
}

// latest is how much was read and written, and when last: now if that was since it was
// last tended.
func (u *usage) latest(now time.Time) (Use, lastUse) {
	u.mu.Lock()
	defer u.mu.Unlock()
	total := u.total()
	return total, u.lastAt(total, now)
}

// lastAt is when the last of a total was, seen now. The caller has the lock.
func (u *usage) lastAt(total Use, now time.Time) lastUse {
	last := u.last
	if total.Reads != u.seen.Reads {
		last.read = now
	}
	if total.Writes != u.seen.Writes {
		last.write = now
	}
	return last
}

// total is the use under all key_ids. The caller has the lock.
func (u *usage) total() Use {
	total := u.gone
	for _, k := range u.byKeyID {
		total = total.and(k.counts.now())
	}
	return total
}

// Usage is the use under each key_id since the provider was made. A key_id under
// which no DEK is left is listed until [Provider.DropAged] was called twice, and
// later begins again at zero if it is met again.
func (p *Provider) Usage() map[string]Use {
	u := &p.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	uses := make(map[string]Use, len(u.byKeyID))
	for keyID, k := range u.byKeyID {
		uses[keyID] = k.counts.now()
	}
	return uses
}

// tend forgets key_ids under which no DEK was left the last time either, and notes
// whether anything was read or written since then.
func (u *usage) tend(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for keyID, k := range u.byKeyID {
		left := k.live.Value() == nil // looked at first: then the count is the last
		if left && k.left {
			u.gone = u.gone.and(k.counts.now())
			delete(u.byKeyID, keyID)
		}
		k.left = left
	}
	total := u.total()
	u.last = u.lastAt(total, now)
	u.seen = total
}

// now is the use so far.
func (c *counts) now() Use {
	use := Use{Reads: c.reads.Load()}
	c.sealed = slices.DeleteFunc(c.sealed, func(b *budget) bool {
		if b.left() > 0 {
			use.Writes += b.spent()
			return false
		}
		c.ended += b.spent()
		return true
	})
	use.Writes += c.ended
	return use
}
