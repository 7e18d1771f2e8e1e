package envelope

import (
	"sync"

	"github.com/kube-atrest/atrest/internal/plugin"
	"github.com/kube-atrest/atrest/internal/stored"
)

// memory is what all providers of one plugin share, whatever timeout they call it
// with.
type memory struct {
	cache      *cache
	doubted    *cache // what has opened nothing, and not what it should have
	samples    plugin.Samples[stored.DEKSource]
	usage      usage
	era        eras
	unanswered unanswered

	mu      sync.Mutex
	sharers map[*Provider]struct{}
}

// maxDoubted is how many DEKs in doubt are kept.
const maxDoubted = 64

func newMemory(maxDEKs int) *memory {
	m := &memory{cache: newCache(maxDEKs), doubted: newCache(maxDoubted), sharers: map[*Provider]struct{}{}}
	m.cache.residents.kept = func(e *entry) bool { return m.isKept(e.dek) }
	return m
}

// isKept reports whether memory may be the only place for a DEK.
func (m *memory) isKept(d *knownDEK) bool { return m.era.isOver(d) || d.unanswered.Load() }

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

// lose begins another era: the plugin was found to have lost a KEK in an era, unless
// that is known already. Nothing that was wrapped until now is written with, by whoever
// shares the memory; it is read with.
func (m *memory) lose(finder *Provider, era uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if era < m.era.lost.Load() {
		return
	}
	m.era.lost.Store(m.begin())
	for p := range m.sharers {
		former := p.writer.lose()
		p.setAside(former)
		if p != finder && former != nil {
			p.mustMakeAnother()
		}
	}
}

// question begins another era: something that the plugin had unwrapped it no longer does,
// though it is well, and whether it ever will again is not known. All that was wrapped
// until now is stale until the plugin unwraps it again, but for sure, which it has
// unwrapped just now; nil for nothing. It is written with as before.
func (m *memory) question(sure *knownDEK) {
	m.mu.Lock()
	defer m.mu.Unlock()
	era := m.begin()
	if sure != nil {
		m.era.unwrapped(sure, era)
	}
	for p := range m.sharers {
		if d := p.writer.current(); d != nil && d.opener != sure {
			p.followed.Look() // it is tried
		}
	}
}

// begin begins another era. The caller holds mu.
func (m *memory) begin() (era uint32) {
	era = m.era.now.Add(1)
	m.samples.Clear()
	m.unanswered.clear()
	for p := range m.sharers { // before anybody could look for it in vain
		p.setAside(p.writer.current())
		p.setAside(p.writer.aside())
	}
	return era
}

// mustMakeAnother notes that what the plugin wrapped was found to be lost, and has it
// asked for another DEK.
func (p *Provider) mustMakeAnother() {
	t := plugin.Troublef(Failed, "decrypt: the plugin no longer unwraps what it has wrapped, as was seen a moment ago")
	now := p.opts.Clock.Now()
	p.followed.Learn(func(k plugin.Known) plugin.Known {
		k.Decrypt = k.Decrypt.After(t, now, now)
		return k
	})
	p.followed.Look()
}

// writesWith reports whether a budget is of a DEK that somebody writes with, or may
// write with again.
func (m *memory) writesWith(b *budget) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.sharers {
		for _, d := range []*writeDEK{p.writer.current(), p.writer.aside()} {
			if d != nil && d.uses() == b {
				return true
			}
		}
	}
	return false
}

// inUse are the DEKs that are written with now.
func (m *memory) inUse() map[*knownDEK]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	deks := map[*knownDEK]bool{}
	for p := range m.sharers {
		if now := p.writer.now.Load(); now != nil && now.open {
			deks[now.dek.opener] = true
		}
	}
	return deks
}
