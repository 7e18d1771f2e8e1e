package node

import (
	"fmt"
	"strings"
	"time"
)

// Metrics is the report in the text format of Prometheus. What is not known has no sample.
func (r *Report) Metrics() string {
	var m metrics
	m.head("atrest_node_looked_timestamp_seconds", "gauge", "When the node looked last: all else is as it was then.")
	if !r.At.IsZero() {
		m.sample("", seconds(r.At))
	}
	m.head("atrest_node_revision", "gauge", "Revision of the bundle that is wanted, accepted and in effect.")
	for _, of := range []struct {
		name string
		rev  *Revision
	}{{"wanted", r.Wanted}, {"accepted", r.Accepted}, {"in_effect", r.InEffect}} {
		if of.rev != nil {
			m.sample(fmt.Sprintf("{of=%q}", of.name), float64(of.rev.Revision))
		}
	}
	m.head("atrest_node_waits", "gauge", "How many reasons there are why not all is as it is wanted.")
	m.sample("", float64(len(r.Waits)))
	m.head("atrest_node_problems", "gauge", "How many things went wrong when they were last tried.")
	m.sample("", float64(len(r.Problems)))
	m.plugins("atrest_node_plugin_well", "Whether the plugin encrypts and decrypts.", r, func(p PluginReport) (float64, bool) {
		return boolean(p.Well), !p.At.IsZero()
	})
	m.plugins("atrest_node_plugin_last_well_timestamp_seconds", "When the plugin was last well.", r, func(p PluginReport) (float64, bool) {
		return seconds(p.LastWell), !p.LastWell.IsZero()
	})
	m.plugins("atrest_node_plugin_files_timestamp_seconds", "Since when the plugin has its present credentials.", r, func(p PluginReport) (float64, bool) {
		return seconds(p.FilesSince), !p.FilesSince.IsZero()
	})
	m.head("atrest_node_plugin_restarts_total", "counter", "How often the plugin of a keyID ended by itself since the node started.")
	told := map[string]bool{}
	for _, p := range r.Plugins {
		if !told[p.KeyID] {
			told[p.KeyID] = true
			m.sample(fmt.Sprintf("{keyid=%q}", p.KeyID), float64(p.Restarts))
		}
	}
	return m.String()
}

type metrics struct {
	strings.Builder
	name string
}

func (m *metrics) head(name, kind, help string) {
	m.name = name
	fmt.Fprintf(m, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (m *metrics) sample(labels string, value float64) {
	fmt.Fprintf(m, "%s%s %g\n", m.name, labels, value)
}

func (m *metrics) plugins(name, help string, r *Report, value func(PluginReport) (float64, bool)) {
	m.head(name, "gauge", help)
	for _, p := range r.Plugins {
		if v, known := value(p); known {
			m.sample(fmt.Sprintf("{keyid=%q,instance=%q,linked=\"%t\"}", p.KeyID, p.Instance, p.Linked), v)
		}
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
