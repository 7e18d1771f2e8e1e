package metrics

import (
	"sync"

	"k8s.io/component-base/metrics"
)

var configWarnings = sync.OnceValue(func() *metrics.GaugeVec {
	return gauge("encryption_config_warnings",
		"Warnings about the encryption configuration in use, by kind; the log has their fields and texts.", "kind")
})

var unservedResources = sync.OnceValue(func() *metrics.GaugeVec {
	return gauge("encryption_config_unserved_resources",
		"Resources named in the encryption configuration that this server does not have, most often typing errors; absent while that is not known.")
})

// UnservedResources records how many resources of the configuration the server does
// not have, if that is known.
func UnservedResources(n int, known bool) {
	vec := unservedResources()
	if !known {
		vec.Reset()
		return
	}
	vec.WithLabelValues().Set(float64(n))
}

// ConfigWarnings records how many warnings of each kind there are about the
// configuration in use, in place of those before.
func ConfigWarnings(counts map[string]int) {
	vec := configWarnings()
	vec.Reset()
	for kind, n := range counts {
		vec.WithLabelValues(kind).Set(float64(n))
	}
}
