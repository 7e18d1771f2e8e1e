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

// keyUse counts the use under one key_id, whichever DEKs it is of. Every DEK
// under it holds on to it: while one may still count, it is there.
type keyUse struct{ *counts }

// counts are those of a keyUse. They outlive it until they were told.
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
	mu       sync.Mutex
	byKeyID  map[string]*usedKey
	gone     uint64 // reads under key_ids that are no longer listed
	told     uint64 // reads as of the last call of Usage
	lastRead time.Time
}

// usedKey is what is known of the use of a key_id.
type usedKey struct {
	live   weak.Pointer[keyUse] // nil when no DEK under it is left
	counts *counts
	left   bool // no DEK was left when it was listed last, with its last counts
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

func (u *usage) reads() (uint64, time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.told, u.lastRead
}

// Usage is the use under each key_id since the provider was made. A key_id under
// which no DEK is left is listed once more, with its last counts, and later begins
// again at zero if it is met again. It is for one caller, every few seconds.
func (p *Provider) Usage() map[string]Use {
	u := &p.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	uses, reads := make(map[string]Use, len(u.byKeyID)), u.gone
	for keyID, k := range u.byKeyID {
		left := k.live.Value() == nil // looked at first: then the counts are the last
		use := k.counts.now()
		reads += use.Reads
		if left && k.left {
			u.gone += use.Reads
			delete(u.byKeyID, keyID)
			continue
		}
		uses[keyID], k.left = use, left
	}
	if reads != u.told {
		u.told, u.lastRead = reads, p.opts.Clock.Now()
	}
	return uses
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
