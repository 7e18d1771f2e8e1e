package kmsv1

import (
	"context"

	"github.com/kube-atrest/atrest/internal/plugin"
)

// Lease is the use of a provider by one configuration. A provider lives for as
// long as somebody leases it, and probes its plugin for as long as somebody
// leases it for writing.
type Lease struct {
	*Provider
	end func()
}

// End gives the lease back. The last one to end closes the provider: it waits
// for calls under way, which their timeout bounds. Ending twice is harmless.
func (l *Lease) End() { l.end() }

// LeaseToRead takes the provider into use for reading. It calls nobody.
func (p *Provider) LeaseToRead() *Lease { return &Lease{Provider: p, end: p.leases.Read()} }

// LeaseToWrite takes the provider into use for reading and writing. The first
// such lease begins to probe the plugin; see [Provider.Probed].
func (p *Provider) LeaseToWrite() *Lease { return &Lease{Provider: p, end: p.leases.Write()} }

// follow probes the plugin while something is written with it.
func (p *Provider) follow(use plugin.Use, before *plugin.Loop) *plugin.Loop {
	if use != plugin.Written {
		p.prober.Store(nil)
		return nil
	}
	w := startProber(p.plugin, p.opts, before)
	p.prober.Store(w)
	return w.Loop
}

// Probed waits until the plugin was asked for the first time since the
// provider is leased for writing, whatever came of it, or until ctx ends. It
// returns at once for a provider that only reads.
func (p *Provider) Probed(ctx context.Context) error {
	w := p.prober.Load()
	if w == nil {
		return nil
	}
	return w.Asked(ctx)
}
