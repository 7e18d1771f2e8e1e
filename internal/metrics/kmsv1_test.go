package metrics

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"
)

// sampleOf is the value of a metric, or the number of observations of a
// histogram, with all of the labels given as "name=value".
func sampleOf(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	next:
		for _, m := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetName()+"="+l.GetValue()] = true
			}
			for _, l := range labels {
				if !has[l] {
					continue next
				}
			}
			switch {
			case m.Histogram != nil:
				return float64(m.Histogram.GetSampleCount())
			case m.Counter != nil:
				return m.Counter.GetValue()
			}
			return m.Gauge.GetValue()
		}
	}
	return -1
}

// Under kube-apiserver's names, where it has them.
func TestKMSv1(t *testing.T) {
	k := KMSv1{Provider: "v1-test"}
	grows := func(by float64, do func(), name string, labels ...string) {
		t.Helper()
		before := max(sampleOf(t, name, labels...), 0)
		do()
		require.InDelta(t, before+by, sampleOf(t, name, labels...), 0, name)
	}
	grows(1, k.CacheMiss, "apiserver_storage_envelope_transformation_cache_misses_total")
	grows(1, func() { k.DEKGenerated(time.Microsecond, nil) }, "apiserver_storage_data_key_generation_duration_seconds")
	grows(1, func() { k.DEKGenerated(0, errors.New("x")) }, "apiserver_storage_data_key_generation_failures_total")
	grows(1, func() { k.Arrived(FromStorage) }, "apiserver_envelope_encryption_dek_cache_inter_arrival_time_seconds", "transformation_type=from_storage")
	grows(1, func() { k.Arrived(ToStorage) }, "apiserver_envelope_encryption_dek_cache_inter_arrival_time_seconds", "transformation_type=to_storage")
	k.CacheFill(0.25)
	require.InDelta(t, 0.25, sampleOf(t, "apiserver_envelope_encryption_dek_cache_fill_percent"), 0)

	grows(1, k.CBCFallback, "atrest_kms_v1_cbc_fallback_total", "provider_name=v1-test")
	grows(1, k.CBCFallback, "atrest_kms_v1_cbc_fallback_total", "provider_name=v1-test")
}

func TestTheConditionOfKMSv1HasNoWriteWindow(t *testing.T) {
	k := KMSv1{Provider: "v1-condition"}
	k.Condition("timeout", time.Unix(1700000000, 0))
	require.InDelta(t, 0, sampleOf(t, "atrest_kms_provider_healthy", "provider_name=v1-condition"), 0)
	require.InDelta(t, 1, sampleOf(t, "atrest_kms_provider_problem", "provider_name=v1-condition", "problem=timeout"), 0)
	require.InDelta(t, 1700000000, sampleOf(t, "atrest_kms_last_healthy_timestamp_seconds", "provider_name=v1-condition"), 0)
	require.InDelta(t, -1, sampleOf(t, "atrest_kms_writes_until_timestamp_seconds", "provider_name=v1-condition"), 0)
	k.Condition("", time.Unix(1700000060, 0))
	require.InDelta(t, 1, sampleOf(t, "atrest_kms_provider_healthy", "provider_name=v1-condition"), 0)
	require.InDelta(t, -1, sampleOf(t, "atrest_kms_provider_problem", "provider_name=v1-condition"), 0)
	KMS{Provider: "v1-condition"}.Forget()
	require.InDelta(t, -1, sampleOf(t, "atrest_kms_provider_healthy", "provider_name=v1-condition"), 0)
}
