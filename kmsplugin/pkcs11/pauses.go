//go:build cgo

package pkcs11

import (
	"sync"
	"time"
)

// What may be no use, or do harm, is tried again after a minute, then after two, and so on: an HSM
// that starts may take some time to know all it has to.
const (
	shortest = time.Minute
	longest  = 15 * time.Minute
)

// longer is the pause after another one.
func longer(pause time.Duration) time.Duration { return min(max(2*pause, shortest), longest) }

// pauses allows something once, and then after pauses. It is safe for concurrent use.
type pauses struct {
	mu    sync.Mutex
	next  time.Time
	pause time.Duration
}

func (p *pauses) allows(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.next) {
		return false
	}
	p.pause = longer(p.pause)
	p.next = now.Add(p.pause)
	return true
}

// forget is for once it has helped.
func (p *pauses) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.pause = time.Time{}, 0
}
