package metrics

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/hashed"
)

func TestOnlyADEKThatWasMadeCountsAsOne(t *testing.T) {
	k := KMS{Provider: "dek-made"}
	made := func() float64 {
		return sampleOf(t, "atrest_kms_deks_made_total", "provider_name=dek-made", "reason=start")
	}
	failures := max(sampleOf(t, "apiserver_storage_data_key_generation_failures_total"), 0)
	k.DEKMade("start", time.Millisecond, errors.New("x"))
	require.InDelta(t, -1, made(), 0)
	require.InDelta(t, failures+1, sampleOf(t, "apiserver_storage_data_key_generation_failures_total"), 0)
	k.DEKMade("start", time.Millisecond, nil)
	require.InDelta(t, 1, made(), 0)
}

// No alert goes on about a provider that is gone.
func TestForgetRemovesEveryGaugeOfTheProviderAndOfNoOther(t *testing.T) {
	now := time.Unix(1700000000, 0)
	record := func(provider string) KMS {
		k := KMS{Provider: provider, APIServerID: "forgetful"}
		k.Condition(Condition{Problem: "timeout", WritesUntil: now, LastHealthy: now, DEKCreated: now, DEKWrites: 7})
		k.StatusKeyIDAt("key", now)
		k.KeyIDUsed(FromStorage, "key", 3)
		k.CacheSize(2)
		k.DEKMade("start", time.Millisecond, nil)
		return k
	}
	gauges := map[string]float64{
		"atrest_kms_provider_healthy":                                             0,
		"atrest_kms_provider_problem":                                             1,
		"atrest_kms_writes_until_timestamp_seconds":                               1700000000,
		"atrest_kms_last_healthy_timestamp_seconds":                               1700000000,
		"atrest_kms_dek_created_timestamp_seconds":                                1700000000,
		"atrest_kms_dek_writes":                                                   7,
		"apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds": 1700000000,
		"apiserver_envelope_encryption_dek_source_cache_size":                     2,
	}
	const lastUsed = "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds"
	gone, stays := record("forget-gone"), record("forget-stays")
	for name, want := range gauges {
		require.InDelta(t, want, sampleOf(t, name, "provider_name=forget-gone"), 0, name)
	}
	require.Positive(t, sampleOf(t, lastUsed, "provider_name=forget-gone"))

	gone.Forget()
	for name, want := range gauges {
		require.InDelta(t, -1, sampleOf(t, name, "provider_name=forget-gone"), 0, name)
		require.InDelta(t, want, sampleOf(t, name, "provider_name="+stays.Provider), 0, name)
	}
	require.InDelta(t, -1, sampleOf(t, lastUsed, "provider_name=forget-gone"), 0)

	require.InDelta(t, 1, sampleOf(t, "atrest_kms_deks_made_total", "provider_name=forget-gone"), 0, "what was counted stays")
	require.InDelta(t, 3, sampleOf(t, "apiserver_envelope_encryption_key_id_hash_total", "provider_name=forget-gone",
		"key_id_hash="+hashed.ID("key")), 0)
}
