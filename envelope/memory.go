package envelope

import (
	"sync"
	"sync/atomic"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// memory is what all providers of one plugin share, whatever timeout they call it
// with.
type memory struct {
	cache   *cache
	samples plugin.Samples[stored.DEKSource]
	usage   usage
	era     atomic.Uint32 // how often the plugin was found to have lost a KEK

	mu      sync.Mutex
	sharers map[*Provider]struct{}
}

func newMemory(maxDEKs int) *memory {
	return &memory{cache: newCache(maxDEKs), sharers: map[*Provider]struct{}{}}
}

func (m *memory) join(p *Provider) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sharers[p] = struct{}{}
}

func (m *memory) leave(p *Provider) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sharers, p)
}

// lose begins another era: the plugin was found to have lost a KEK. Nothing that was
// wrapped until now is written with, by whoever shares the memory; it is read with,
// as there is no other place for it now than the cache.
func (m *memory) lose(finder *Provider) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.era.Add(1)
	for p := range m.sharers {
		p.setAside(p.writer.current()) // before anybody could look for it in vain
		p.setAside(p.writer.lose())
		if p != finder {
			p.followed.Look() // it has to make another DEK
		}
	}
}
