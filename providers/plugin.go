package providers

import (
	"context"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/transformer"
)

// source is a KMS plugin of either version.
type source interface {
	transformer.Provider
	// Hold keeps the plugin open, and calls nobody.
	Hold() (end func())
	Health() envelope.Health
	SetRole(envelope.Role)
	Prepare(context.Context) error
	Ask(context.Context) error
	// Ailing is what is known to be wrong with the plugin, also if it is new.
	Ailing() error
	// inherit takes over the DEKs of a provider of the same kind.
	inherit(source)
	// tend looks after what the provider keeps, and brings the metrics of its
	// condition in line; count those of what was read and written.
	tend(*observer)
	count(*observer)
}

// count brings the metrics of what was read and written in line.
func (u *pluginUse) count() {
	if u.counts {
		u.source.count(u.observer)
	}
}

type v2 struct{ *envelope.Provider }

func (p v2) tend(o *observer) {
	p.DropAged()
	h := p.Health()
	until := h.WritesUntil
	if h.Writes && until.IsZero() {
		until = h.Since // nothing can be written since then
	}
	o.record(func(kms metrics.KMS) {
		kms.Condition(metrics.Condition{
			Problem: string(h.Problem), WritesUntil: until, LastHealthy: h.LastHealthy,
			DEKCreated: h.DEKCreated, DEKWrites: h.DEKWrites,
		})
		kms.CacheSize(h.CachedDEKs)
	})
}

func (p v2) count(o *observer) { o.used(p.Usage) }

func (p v1) count(o *observer) { o.usedV1(p.Usage) }

func (p v2) inherit(from source) { p.Inherit(from.(v2).Provider) }

type v1 struct{ *kmsv1.Provider }

func (p v1) inherit(from source) { p.Inherit(from.(v1).Provider) }

func (p v1) tend(o *observer) {
	p.DropAged()
	h := p.Health()
	o.record(func(kms metrics.KMS) { kms.V1().Condition(string(h.Problem), h.LastHealthy) })
}
