package metrics

import (
	"sync"
	"time"

	"k8s.io/apiserver/pkg/storage/value"
	envelopemetrics "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/metrics"
	"k8s.io/component-base/metrics"
)

var cbcFallbacks = sync.OnceValue(func() *metrics.CounterVec {
	return adopt(metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "atrest", Name: "kms_v1_cbc_fallback_total",
		Help: "Values of a KMS v1 provider that did not open as AES-GCM and were opened as AES-CBC, which authenticates nothing. " +
			"It stays still once everything written by Kubernetes before v1.25 has been written again; if it then counts on, values were tampered with.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"provider_name"}))
})

// KMSv1 records what happens at one KMS v1 provider. kube-apiserver's metrics
// of KMS v1 do not tell providers apart.
type KMSv1 struct{ Provider string }

// DEKGenerated records that a DEK was generated, or that it failed.
func (k KMSv1) DEKGenerated(took time.Duration, err error) {
	value.RecordDataKeyGeneration(time.Now().Add(-took), err)
}

// CacheMiss records that a DEK had to be unwrapped.
func (k KMSv1) CacheMiss() { value.RecordCacheMiss() }

// CacheFill records which part of the cache is in use, from 0 to 1. The
// metric has one value for all providers, that of the last record.
func (k KMSv1) CacheFill(share float64) {
	kmsMetrics()
	envelopemetrics.RecordDekCacheFillPercent(share)
}

// CBCFallback records that a value was opened as AES-CBC.
func (k KMSv1) CBCFallback() { cbcFallbacks().WithLabelValues(k.Provider).Inc() }

// Arrived records that something was read or written since the last record.
// kube-apiserver does so for every operation, under a lock that the whole
// process shares. The first bucket of the metric is one minute, so a record
// every few seconds fills the same buckets: never call it per operation.
func (k KMSv1) Arrived(d Direction) {
	kmsMetrics()
	envelopemetrics.RecordArrival(string(d), time.Now())
}

// Condition records the state of the provider; problem is empty when it has
// none. KMS v1 has no time until which values are written without the plugin.
func (k KMSv1) Condition(problem string, lastHealthy time.Time) {
	m := kmsMetrics()
	m.healthy.WithLabelValues(k.Provider).Set(boolean(problem == ""))
	m.lastHealthy.WithLabelValues(k.Provider).Set(unix(lastHealthy))
	m.problem.DeletePartialMatch(map[string]string{"provider_name": k.Provider})
	if problem != "" {
		m.problem.WithLabelValues(k.Provider, problem).Set(1)
	}
}
