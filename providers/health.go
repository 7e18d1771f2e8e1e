package providers

import (
	"slices"
	"time"

	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/healthz"
)

// Health is what is known of every KMS plugin, in the order of the file. Nobody is
// asked.
func (t *Transformers) Health() []healthz.Provider {
	all := []healthz.Provider{}
	for _, u := range t.plugins {
		p := told(u.source.Health())
		p.Names, p.Endpoint, p.WritesFor = u.names(), u.providers[0].KMS().Endpoint, t.writtenWith(u)
		all = append(all, p)
	}
	return all
}

func told(h envelope.Health) healthz.Provider {
	p := healthz.Provider{
		Role: healthz.Reads, Problem: string(h.Problem), Since: h.Since,
		KeyIDHash: h.KeyIDHash, DEKCreated: h.DEKCreated, DEKWrites: h.DEKWrites, DEKHash: h.DEKHash, LastHealthy: h.LastHealthy,
		WritesUntil: h.WritesUntil, CachedDEKs: h.CachedDEKs, Reads: h.Reads, LastRead: h.LastRead, LastWrite: h.LastWrite,
	}
	if h.Writes {
		p.Role = healthz.Writes
	}
	if h.Err != nil {
		p.Message = h.Err.Error()
	}
	return p
}

func (t *Transformers) writtenWith(u *pluginUse) []string {
	var resources []string
	for _, rule := range t.configuration.Rules() {
		if slices.Contains(u.providers, rule.Providers[0]) {
			resources = append(resources, rule.Name())
		}
	}
	return resources
}

// worstLast are the plugins with those that have a problem last: of several with
// one name, which a file without reload may have of KMS v1 and v2, the metrics
// tell what was recorded last.
func (t *Transformers) worstLast() []*pluginUse {
	var well, ill []*pluginUse
	for _, u := range t.plugins {
		if u.source.Health().Problem == "" {
			well = append(well, u)
		} else {
			ill = append(ill, u)
		}
	}
	return append(well, ill...)
}

// Tend drops DEKs of the maximum age and brings the metrics in line with the
// use and the health of the plugins as of now. It is for one caller at a time,
// every few seconds; [Transformers.Removed] counts as one.
func (t *Transformers) Tend(now time.Time) {
	for _, u := range t.worstLast() {
		u.count()
		u.source.tend(u.observer)
	}
	for _, u := range t.locals {
		u.tend(now)
	}
}
