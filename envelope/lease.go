package envelope

import (
	"context"
	"sync"
)

// Lease is the use of a provider by one configuration. A provider lives for as
// long as somebody leases it, and follows its plugin's Status for as long as
// somebody leases it for writing.
type Lease struct {
	*Provider
	end func()
}

// End gives the lease back. The last one to end closes the provider: it waits
// for calls under way, which their timeout bounds. Ending twice is harmless.
func (l *Lease) End() { l.end() }

// LeaseToRead takes the provider into use for reading. It calls nobody.
func (p *Provider) LeaseToRead() *Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
	return &Lease{Provider: p, end: sync.OnceFunc(p.endRead)}
}

// LeaseToWrite takes the provider into use for reading and writing. The first
// such lease begins to follow the plugin; see [Provider.Probed].
func (p *Provider) LeaseToWrite() *Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users++
	p.writers++
	if p.writers == 1 {
		p.writer.Store(startWriter(p))
	}
	return &Lease{Provider: p, end: sync.OnceFunc(p.endWrite)}
}

func (p *Provider) endWrite() {
	p.mu.Lock()
	p.writers--
	var idle *writer
	if p.writers == 0 {
		idle = p.writer.Swap(nil)
	}
	p.mu.Unlock()
	if idle != nil {
		idle.close()
	}
	p.endRead()
}

func (p *Provider) endRead() {
	p.mu.Lock()
	p.users--
	last := p.users == 0
	p.closed = p.closed || last
	p.mu.Unlock()
	if last {
		p.calls.Wait()
		p.plugin.Close()
	}
}

// Probed waits until the plugin was asked for the first time since the
// provider is leased for writing, whatever came of it, or until ctx ends. It
// returns at once for a provider that only reads.
func (p *Provider) Probed(ctx context.Context) error {
	w := p.writer.Load()
	if w == nil {
		return nil
	}
	select {
	case <-w.probed:
		return nil
	case <-w.done:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
