package metrics

import (
	"errors"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/storage/value"
	envelopemetrics "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/metrics"
	"k8s.io/component-base/metrics"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/stored"
)

// New metrics, for what kube-apiserver does not tell.
var kmsMetrics = sync.OnceValue(func() (m struct {
	healthy     *metrics.GaugeVec
	problem     *metrics.GaugeVec
	writesUntil *metrics.GaugeVec
	lastHealthy *metrics.GaugeVec
	dekCreated  *metrics.GaugeVec
	dekWrites   *metrics.GaugeVec
	deksMade    *metrics.CounterVec
}) {
	envelopemetrics.RegisterMetrics()
	m.healthy = gauge("kms_provider_healthy",
		"Whether nothing is known to be wrong with the KMS plugin of the provider (1) or something is (0).", "provider_name")
	m.problem = gauge("kms_provider_problem",
		"1 for the class of what is wrong with the KMS plugin of the provider; absent when nothing is.", "provider_name", "problem")
	m.writesUntil = gauge("kms_writes_until_timestamp_seconds",
		"When writing with the KMS provider stops unless its plugin is found healthy again: in the past once it has stopped, and while there is no key to write with; 0 for one that is only read with.", "provider_name")
	m.lastHealthy = gauge("kms_last_healthy_timestamp_seconds",
		"When the Status of the KMS plugin was last healthy; 0 if never.", "provider_name")
	m.dekCreated = gauge("kms_dek_created_timestamp_seconds",
		"When the data encryption key that is written with was made; 0 if there is none.", "provider_name")
	m.dekWrites = gauge("kms_dek_writes",
		"How many values the data encryption key that is written with has sealed.", "provider_name")
	m.deksMade = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "atrest", Name: "kms_deks_made_total",
		Help:           "Data encryption keys made for writing, by reason: start, key_id (the plugin's changed), used_up or not_unwrapped (the plugin lost the one before).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"provider_name", "reason"})
	m.deksMade = adopt(m.deksMade)
	return m
})

func gauge(name, help string, labels ...string) *metrics.GaugeVec {
	return adopt(metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "atrest", Name: name, Help: help, StabilityLevel: metrics.ALPHA,
	}, labels))
}

// KMS records what happens at one KMS provider.
type KMS struct {
	Provider    string
	APIServerID string
}

// Call records a call to the plugin; method is its full gRPC name.
func (k KMS) Call(method string, took time.Duration, err error) {
	kmsMetrics()
	envelopemetrics.RecordKMSOperationLatency(k.Provider, method, took, err)
}

// StatusKeyID records that Status named keyID.
func (k KMS) StatusKeyID(keyID string) {
	kmsMetrics()
	envelopemetrics.RecordKeyIDFromStatus(k.Provider, keyID, k.APIServerID)
}

// StatusKeyIDAt records when Status named keyID last, as of an earlier record.
func (k KMS) StatusKeyIDAt(keyID string, at time.Time) {
	k.StatusKeyID(keyID)
	envelopemetrics.KeyIDHashStatusLastTimestampSeconds.WithLabelValues(k.Provider, hashed.ID(keyID), hashed.ID(k.APIServerID)).Set(unix(at))
}

// KeyIDRefused records a key_id of Status that cannot be used.
func (k KMS) KeyIDRefused(err error) {
	kmsMetrics()
	code := "empty"
	if errors.Is(err, stored.ErrKeyIDTooLong) {
		code = "too_long"
	}
	envelopemetrics.RecordInvalidKeyIDFromStatus(k.Provider, code)
}

// DEKMade records that a DEK was generated and wrapped, or that it failed.
func (k KMS) DEKMade(reason string, took time.Duration, err error) {
	value.RecordDataKeyGeneration(time.Now().Add(-took), err)
	if err == nil {
		kmsMetrics().deksMade.WithLabelValues(k.Provider, reason).Inc()
	}
}

// CacheMiss records that a DEK was not held and had to be unwrapped.
func (k KMS) CacheMiss() { value.RecordCacheMiss() }

// CacheSize records how many DEKs are held.
func (k KMS) CacheSize(n int) {
	kmsMetrics()
	envelopemetrics.RecordDekSourceCacheSize(k.Provider, n)
}

// KeyIDUsed records n operations under keyID since the last record. It takes a
// lock that the whole process shares: never call it per operation.
func (k KMS) KeyIDUsed(d Direction, keyID string, n uint64) {
	if n == 0 {
		return
	}
	kmsMetrics()
	envelopemetrics.RecordKeyID(string(d), k.Provider, keyID, k.APIServerID)
	envelopemetrics.KeyIDHashTotal.WithLabelValues(string(d), k.Provider, hashed.ID(keyID), hashed.ID(k.APIServerID)).Add(float64(n - 1))
}

// KeyIDUsedAt records when keyID was last used, as of an earlier record.
func (k KMS) KeyIDUsedAt(d Direction, keyID string, at time.Time) {
	kmsMetrics()
	envelopemetrics.KeyIDHashLastTimestampSeconds.WithLabelValues(string(d), k.Provider, hashed.ID(keyID), hashed.ID(k.APIServerID)).Set(unix(at))
}

// Condition is the state of a provider.
type Condition struct {
	// Problem is the class of what is wrong, empty if nothing is.
	Problem string
	// Times are zero if what they tell of has not happened.
	WritesUntil, LastHealthy, DEKCreated time.Time
	DEKWrites                            uint64
}

// Condition records the state of the provider.
func (k KMS) Condition(c Condition) {
	m := kmsMetrics()
	m.healthy.WithLabelValues(k.Provider).Set(boolean(c.Problem == ""))
	m.writesUntil.WithLabelValues(k.Provider).Set(unix(c.WritesUntil))
	m.lastHealthy.WithLabelValues(k.Provider).Set(unix(c.LastHealthy))
	m.dekCreated.WithLabelValues(k.Provider).Set(unix(c.DEKCreated))
	m.dekWrites.WithLabelValues(k.Provider).Set(float64(c.DEKWrites))
	m.problem.DeletePartialMatch(map[string]string{"provider_name": k.Provider})
	if c.Problem != "" {
		m.problem.WithLabelValues(k.Provider, c.Problem).Set(1)
	}
}

// V1 records what happens at the provider if it is one of KMS v1.
func (k KMS) V1() KMSv1 { return KMSv1{Provider: k.Provider} }

// Forget removes the state of a provider that is no longer configured: every
// gauge that has its name, so that no alert goes on about it. What was counted
// stays counted.
func (k KMS) Forget() {
	m := kmsMetrics()
	for _, vec := range []*metrics.GaugeVec{m.healthy, m.problem, m.writesUntil, m.lastHealthy, m.dekCreated, m.dekWrites,
		envelopemetrics.KeyIDHashLastTimestampSeconds, envelopemetrics.KeyIDHashStatusLastTimestampSeconds, envelopemetrics.DekSourceCacheSize} {
		vec.DeletePartialMatch(map[string]string{"provider_name": k.Provider})
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
