package providers

import (
	"slices"
	"time"

	"github.com/kube-atrest/atrest/envelope"
)

// PluginHealth is the health of one KMS plugin with its place in the file.
type PluginHealth struct {
	envelope.Health
	// Names are those of the providers on the plugin.
	Names []string
	// Endpoint is the plugin's, as the file has it.
	Endpoint string
	// WritesFor are the resources that are written with the plugin, as the
	// file names them.
	WritesFor []string
}

// Health is what is known of every KMS plugin, in the order of the file.
// Nobody is asked.
func (t *Transformers) Health() []PluginHealth {
	var all []PluginHealth
	for _, u := range t.plugins {
		all = append(all, PluginHealth{
			Health:    u.source.Health(),
			Names:     u.names(),
			Endpoint:  u.providers[0].KMS().Endpoint,
			WritesFor: t.writtenWith(u),
		})
	}
	return all
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

// Tend drops DEKs of the maximum age and brings the metrics in line with the
// use and the health of the plugins as of now. It is for one caller at a time,
// every few seconds; [Transformers.Removed] counts as one.
func (t *Transformers) Tend(now time.Time) {
	for _, u := range t.plugins {
		u.tend()
	}
	for _, u := range t.locals {
		u.tend(now)
	}
}
