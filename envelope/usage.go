package envelope

import (
	"sync"
	"time"
)

// Use is how often values were sealed and opened under one key_id.
type Use struct{ Writes, Reads uint64 }

// usage is what was told of a provider's use so far.
type usage struct {
	mu       sync.Mutex
	total    uint64
	lastRead time.Time
}

func (u *usage) reads() (uint64, time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.total, u.lastRead
}

// Usage is the use under each key_id since the last call. It looks at every DEK
// held, so it is for calling every few seconds, not for every operation. What
// was opened under a DEK that has left the cache since then is not counted.
func (p *Provider) Usage() map[string]Use {
	p.usage.mu.Lock()
	defer p.usage.mu.Unlock()
	deks := p.cache.deks()
	if w := p.permit(); w != nil {
		deks[w.dek.opener] = struct{}{}
	}
	uses := map[string]Use{}
	for dek := range deks {
		use := dek.untold()
		if use == (Use{}) {
			continue
		}
		sum := uses[dek.keyID]
		uses[dek.keyID] = Use{Writes: sum.Writes + use.Writes, Reads: sum.Reads + use.Reads}
		p.usage.total += use.Reads
		if use.Reads > 0 {
			p.usage.lastRead = p.opts.Clock.Now()
		}
	}
	return uses
}

// untold is the use since the last call; the caller holds the usage's lock.
func (d *knownDEK) untold() Use {
	reads, writes := d.reads.Load(), uint64(0)
	if d.sealed != nil {
		writes = d.sealed.spent()
	}
	use := Use{Writes: writes - d.toldWrites, Reads: reads - d.toldReads}
	d.toldWrites, d.toldReads = writes, reads
	return use
}
