package providers_test

import (
	"bytes"
	"context"
	"crypto/fips140"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/internal/unenforced"
)

// kubeMetrics are kube-apiserver's metrics of KMS v2 that tell providers apart.
var kubeMetrics = []string{
	"apiserver_storage_transformation_operations_total",
	"apiserver_storage_transformation_duration_seconds",
	"apiserver_envelope_encryption_kms_operations_latency_seconds",
	"apiserver_envelope_encryption_key_id_hash_total",
	"apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
	"apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
	"apiserver_envelope_encryption_invalid_key_id_from_status_total",
	"apiserver_envelope_encryption_dek_source_cache_size",
}

// samplesOf are the values of kubeMetrics with the provider in a label, under a
// name without it: counts as they are, and 1 for a time.
func samplesOf(t *testing.T, provider string) map[string]float64 {
	t.Helper()
	metrics.Flush()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, f := range families {
		if !slices.Contains(kubeMetrics, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName() + " " + strings.Join(labels, " ")
			if !strings.Contains(name, provider) {
				continue
			}
			n := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if strings.HasSuffix(f.GetName(), "timestamp_seconds") {
				n = 1
			}
			found[strings.ReplaceAll(name, provider, "provider")] = n
		}
	}
	return found
}

// subject is either implementation with one KMS v2 provider.
type subject struct {
	provider string
	value.Transformer
	tend func()
}

func subjects(t *testing.T, name string, p *faultplugin.Plugin) []subject {
	theirs := filepath.Join(t.TempDir(), "theirs.yaml")
	require.NoError(t, os.WriteFile(theirs, []byte(fileOf(rule("secrets", kms(name+"-theirs", p)))), 0o600))
	var loaded *encryptionconfig.EncryptionConfiguration
	var err error
	fips140.WithoutEnforcement(func() {
		loaded, err = encryptionconfig.LoadEncryptionConfig(t.Context(), theirs, false, "test")
	})
	require.NoError(t, err)
	ours := begun(t, fileOf(rule("secrets", kms(name+"-ours", p))))
	return []subject{
		{name + "-theirs", unenforced.Transformer(loaded.Transformers[secrets]), func() {}},
		{name + "-ours", ours.TransformerForResource(secrets), func() { ours.Tend(time.Now()) }},
	}
}

// foreign is a value that another server wrote, as if with the provider.
func foreign(t *testing.T, p *faultplugin.Plugin, provider string) []byte {
	x := begun(t, fileOf(rule("secrets", kms("another", p))))
	data := write(t, x, secrets, "v")
	return bytes.Replace(data, []byte(stored.KMSv2.PrefixFor("another")), []byte(stored.KMSv2.PrefixFor(provider)), 1)
}

// The same operations leave the same numbers under the same names, so that
// dashboards and alerts carry over.
func TestMetricsAreThoseOfKubeAPIServer(t *testing.T) {
	p := faultplugin.Start(t)
	ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{Resource: "secrets"})
	var all []map[string]float64
	for _, s := range subjects(t, unique("metrics"), p) {
		for range 3 {
			data, err := s.TransformToStorage(ctx, []byte("v"), at)
			require.NoError(t, err)
			_, _, err = s.TransformFromStorage(ctx, data, at)
			require.NoError(t, err)
		}
		_, _, err := s.TransformFromStorage(ctx, foreign(t, p, s.provider), at)
		require.NoError(t, err)
		unknown := foreign(t, p, s.provider)
		for _, code := range []codes.Code{codes.NotFound, codes.FailedPrecondition, codes.Internal} {
			p.Set(func(b *faultplugin.Behaviour) { b.DecryptErr = status.Error(code, "no") })
			_, _, err = s.TransformFromStorage(ctx, unknown, at)
			require.Error(t, err)
		}
		p.Heal("1")
		_, _, err = s.TransformFromStorage(ctx, unknown[:len(unknown)-1], at)
		require.Error(t, err)
		s.tend()
		all = append(all, samplesOf(t, s.provider))
	}
	require.Greater(t, len(all[0]), 12)
	theirs, ours := all[0], all[1]
	for name := range theirs {
		// A DEK is unwrapped before it is written with, what failed is looked into, and a DEK that
		// is refused when that is done is replaced.
		if strings.Contains(name, "apiserver_envelope_encryption_kms_operations_latency_seconds") {
			require.GreaterOrEqual(t, ours[name], theirs[name], name)
			ours[name] = theirs[name]
		}
	}
	require.Equal(t, theirs, ours)
}

var named atomic.Uint64

// unique makes a name that has no metrics yet: they are the process's.
func unique(name string) string { return fmt.Sprintf("%s-%d", name, named.Add(1)) }

func TestRefusedKeyIDsAreCountedAsInKubeAPIServer(t *testing.T) {
	for name, keyID := range map[string]string{"empty": "", "toolong": strings.Repeat("x", stored.MaxKeyID+1)} {
		p := faultplugin.Start(t)
		p.Heal(keyID)
		var all []map[string]float64
		for _, s := range subjects(t, unique(name), p) {
			_, err := s.TransformToStorage(context.Background(), []byte("v"), at)
			require.Error(t, err)
			all = append(all, samplesOf(t, s.provider))
		}
		count := "apiserver_envelope_encryption_invalid_key_id_from_status_total"
		for i, samples := range all {
			sum := 0.0
			for name, n := range samples {
				if strings.HasPrefix(name, count) {
					require.Contains(t, all[1-i], name)
					sum += n
				}
			}
			require.InDelta(t, 1, sum, 0)
		}
	}
}
