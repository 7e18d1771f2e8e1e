package envelope

import (
	"slices"
	"sync"
	"time"

	"github.com/kube-atrest/atrest/internal/tally"
)

// Use is how often values were sealed and opened under one key_id.
type Use struct{ Writes, Reads uint64 }

// keyUse counts the use under one key_id, whichever DEKs it is of.
type keyUse struct {
	reads  *tally.Counter
	sealed []*sealedUse
}

// sealedUse is what one DEK of this process has sealed.
type sealedUse struct {
	*budget
	told uint64
}

// usage is the use of a provider. Counting is without a lock, on a keyUse that
// was had before.
type usage struct {
	mu       sync.Mutex
	byKeyID  map[string]*keyUse
	total    uint64 // of reads that were told
	lastRead time.Time
}

// of gives the counts of a key_id.
func (u *usage) of(keyID string) *keyUse {
	u.mu.Lock()
	defer u.mu.Unlock()
	use, ok := u.byKeyID[keyID]
	if !ok {
		if u.byKeyID == nil {
			u.byKeyID = map[string]*keyUse{}
		}
		use = &keyUse{reads: tally.NewCounter()}
		u.byKeyID[keyID] = use
	}
	return use
}

// seals has what a DEK seals counted under a key_id.
func (u *usage) seals(keyID string, b *budget) {
	use := u.of(keyID)
	u.mu.Lock()
	defer u.mu.Unlock()
	use.sealed = append(use.sealed, &sealedUse{budget: b})
}

func (u *usage) reads() (uint64, time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.total, u.lastRead
}

// Usage is the use under each key_id since the last call. It is for calling
// every few seconds, not for every operation.
func (p *Provider) Usage() map[string]Use {
	held := p.heldKeyIDs()
	u := &p.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	uses := map[string]Use{}
	for keyID, counts := range u.byKeyID {
		use := counts.take()
		if use != (Use{}) {
			uses[keyID] = use
		} else if !held[keyID] {
			delete(u.byKeyID, keyID)
		}
		u.total += use.Reads
		if use.Reads > 0 {
			u.lastRead = p.opts.Clock.Now()
		}
	}
	return uses
}

// heldKeyIDs are those under which a DEK is held.
func (p *Provider) heldKeyIDs() map[string]bool {
	held := map[string]bool{}
	for dek := range p.cache.deks() {
		held[dek.keyID] = true
	}
	if w := p.permit(); w != nil {
		held[w.dek.keyID] = true
	}
	return held
}

// take is the use since the last call. A DEK that is used up is not looked at
// again.
func (c *keyUse) take() Use {
	use := Use{Reads: c.reads.Take()}
	c.sealed = slices.DeleteFunc(c.sealed, func(s *sealedUse) bool {
		now := s.spent()
		use.Writes += now - s.told
		s.told = now
		return s.left() == 0
	})
	return use
}
