package config

import (
	"context"
	"time"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/transformer"
)

// lease is the use of a KMS plugin of either version.
type lease interface {
	transformer.Provider
	Health() envelope.Health
	Probed(context.Context) error
	End()
}

// source leases a plugin and looks after what it keeps. A lease to hold calls
// nobody.
type source interface {
	toHold() lease
	toRead() lease
	toWrite() lease
	tend(*observer)
}

type v2 struct{ *envelope.Provider }

func (p v2) toHold() lease  { return p.Hold() }
func (p v2) toRead() lease  { return p.LeaseToRead() }
func (p v2) toWrite() lease { return p.LeaseToWrite() }
func (p v2) tend(o *observer) {
	p.DropAged()
	kms := o.kms.Load()
	for keyID, use := range p.Usage() {
		kms.KeyIDUsed(metrics.ToStorage, keyID, use.Writes)
		kms.KeyIDUsed(metrics.FromStorage, keyID, use.Reads)
	}
	h := p.Health()
	kms.Condition(metrics.Condition{
		Problem: string(h.Problem), WritesUntil: h.WritesUntil, LastHealthy: h.LastHealthy,
		DEKCreated: h.DEKCreated, DEKWrites: h.DEKWrites,
	})
}

type v1 struct{ *kmsv1.Provider }

func (p v1) toHold() lease  { return p.LeaseToRead() }
func (p v1) toRead() lease  { return p.LeaseToRead() }
func (p v1) toWrite() lease { return p.LeaseToWrite() }
func (p v1) tend(o *observer) {
	p.DropAged()
	use, h, kms := p.Usage(), p.Health(), o.v1()
	if use.Writes > 0 {
		kms.Arrived(metrics.ToStorage)
	}
	if use.Reads > 0 {
		kms.Arrived(metrics.FromStorage)
	}
	kms.Condition(string(h.Problem), h.LastHealthy)
}

func (o *observer) v1() metrics.KMSv1                          { return metrics.KMSv1{Provider: o.kms.Load().Provider} }
func (o *observer) DEKGenerated(took time.Duration, err error) { o.v1().DEKGenerated(took, err) }
func (o *observer) CacheMissed()                               { o.v1().CacheMiss() }
func (o *observer) CacheFilled(share float64)                  { o.v1().CacheFill(share) }
func (o *observer) CBCOpened()                                 { o.v1().CBCFallback() }
func (o *observer) CBCNoted(etcdKey string, n uint64) {
	o.logger.Info("Warning: opened values as AES-CBC, which authenticates nothing: write them again to be rid of it",
		"provider", o.kms.Load().Provider, "values", n, "latest", etcdKey)
}

var _ kmsv1.Observer = (*observer)(nil)
