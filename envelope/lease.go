package envelope

import (
	"context"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// Lease is the use of a provider by one configuration. A provider lives for as
// long as somebody leases it, and follows its plugin's Status for as long as
// somebody leases it for reading or writing.
type Lease struct {
	*Provider
	end func()
}

// End gives the lease back. The last one to end closes the provider: it waits
// for calls under way, which their timeout bounds. Ending twice is harmless.
func (l *Lease) End() { l.end() }

// Hold keeps the provider open and calls nobody. Reads work, as with the other
// leases.
func (p *Provider) Hold() *Lease { return &Lease{Provider: p, end: p.leases.Hold()} }

// LeaseToRead takes the provider into use for reading. The first such lease
// begins to ask for the plugin's Status, unless it is written with; nobody waits
// for that, and reads do not depend on it.
func (p *Provider) LeaseToRead() *Lease { return &Lease{Provider: p, end: p.leases.Read()} }

// LeaseToWrite takes the provider into use for reading and writing. The first
// such lease begins to follow the plugin as one to write with; see
// [Provider.Probed].
func (p *Provider) LeaseToWrite() *Lease { return &Lease{Provider: p, end: p.leases.Write()} }

// follow has one loop after the other follow the plugin, as what it is used for.
func (p *Provider) follow(use plugin.Use, before *plugin.Loop) *plugin.Loop {
	switch use {
	case plugin.Written:
		w := startWriter(p, before)
		p.writer.Store(w)
		return w.Loop
	case plugin.ReadWith:
		w := startWatcher(p, before)
		p.watcher.Store(w)
		p.writer.Store(nil)
		return w.Loop
	}
	p.writer.Store(nil)
	return nil
}

// Probed waits until the plugin was asked for the first time since the
// provider is leased for writing, whatever came of it, or until ctx ends. It
// returns at once for a provider that only reads.
func (p *Provider) Probed(ctx context.Context) error {
	w := p.writer.Load()
	if w == nil {
		return nil
	}
	return w.Asked(ctx)
}
