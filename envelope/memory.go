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
	doubted *cache // what has opened nothing, and not what it should have
	samples plugin.Samples[stored.DEKSource]
	usage   usage
	era     eras

	mu      sync.Mutex
	sharers map[*Provider]struct{}
}

// eras count how often the plugin was found to have lost a KEK.
type eras struct{ atomic.Uint32 }

// isOver reports whether the era of a DEK is: its KEK is lost, as far as is known.
func (e *eras) isOver(d *knownDEK) bool { return d.era != e.Load() }

// maxDoubted is how many DEKs in doubt are kept.
const maxDoubted = 64

func newMemory(maxDEKs int) *memory {
	m := &memory{cache: newCache(maxDEKs), doubted: newCache(maxDoubted), sharers: map[*Provider]struct{}{}}
	m.cache.residents.kept = func(e *entry) bool { return m.isLost(e.dek) }
	return m
}

// isLost reports whether the KEK of a DEK was found to be lost: then this memory is
// the only place for it.
func (m *memory) isLost(d *knownDEK) bool { return m.era.isOver(d) }

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
// that is over already. Nothing that was wrapped until now is written with, by whoever
// shares the memory; it is read with.
func (m *memory) lose(finder *Provider, era uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.era.Load() != era {
		return
	}
	m.era.Add(1)
	m.samples.Clear()
	for p := range m.sharers {
		p.setAside(p.writer.current()) // before anybody could look for it in vain
		p.setAside(p.writer.aside())
		former := p.writer.lose()
		p.setAside(former)
		if p != finder && former != nil {
			p.mustMakeAnother()
		}
	}
}

// mustMakeAnother notes that what the plugin wrapped is lost, as another provider has
// found, and has it asked for another DEK.
func (p *Provider) mustMakeAnother() {
	t := plugin.Troublef(Failed, "decrypt: the plugin no longer unwraps what it has wrapped, as was seen with another timeout")
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
