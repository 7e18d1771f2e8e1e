package kmsv1

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kube-atrest/atrest/envelope"
)

// usage counts what a provider does.
type usage struct {
	reads, writes atomic.Uint64

	mu                  sync.Mutex
	told                envelope.Use
	lastRead, lastWrite time.Time
}

// Usage is how many values were written and read since the provider was made. It
// is for calling every few seconds.
func (p *Provider) Usage() envelope.Use {
	u := p.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	now := envelope.Use{Writes: u.writes.Load(), Reads: u.reads.Load()}
	if now.Reads != u.told.Reads {
		u.lastRead = p.opts.Clock.Now()
	}
	if now.Writes != u.told.Writes {
		u.lastWrite = p.opts.Clock.Now()
	}
	u.told = now
	return now
}

func (u *usage) into(h *envelope.Health) {
	u.mu.Lock()
	defer u.mu.Unlock()
	h.Reads, h.LastRead, h.LastWrite = u.told.Reads, u.lastRead, u.lastWrite
}

// noteEvery is how often AES-CBC values are told of.
const noteEvery = time.Minute

// notes spreads out what is told of AES-CBC values.
type notes struct {
	mu   sync.Mutex
	last time.Time
	n    uint64
}

// due counts one value and returns how many there were since the last note, 0
// when it is not yet time for one.
func (n *notes) due(now time.Time) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.n++
	if !n.last.IsZero() && now.Sub(n.last) < noteEvery {
		return 0
	}
	count := n.n
	n.n, n.last = 0, now
	return count
}
