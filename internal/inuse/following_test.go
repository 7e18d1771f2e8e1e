package inuse

import (
	"fmt"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kube-atrest/atrest/healthz"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/reload"
)

// sealedBy is a content that writes secrets with a plugin.
func sealedBy(p *faultplugin.Plugin, more string) string {
	return fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"+
		"resources: [{resources: [secrets], providers: [{kms: {apiVersion: v2, name: kms, endpoint: %q}}]}]\n%s", p.Endpoint(), more)
}

// metric is the value of a metric whose labels have these values, -1 if there is none.
func metric(t *testing.T, name string, values ...string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && has(m, values) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return -1
}

func has(m *dto.Metric, values []string) bool {
	found := 0
	for _, value := range values {
		for _, l := range m.GetLabel() {
			if l.GetValue() == value {
				found++
			}
		}
	}
	return found == len(values)
}

const (
	reloads  = "apiserver_encryption_config_controller_automatic_reloads_total"
	lastInfo = "apiserver_encryption_config_controller_last_config_info"
	warnings = "atrest_encryption_config_warnings"
)

func TestTheMetricsTellWhatIsInUse(t *testing.T) {
	k := keep(t, content("one"))
	id := hashed.ID(t.Name())
	require.EqualValues(t, 1, metric(t, lastInfo, id, hashed.Name([]byte(content("one")))))
	require.Zero(t, metric(t, reloads, id, "success"))
	require.Zero(t, metric(t, reloads, id, "failure"))

	defer k.follow()()
	old := contentOf("aescbc", "old")
	k.put(old)
	k.until(func() bool { return metric(t, reloads, id, "success") == 1 })
	require.EqualValues(t, 1, metric(t, lastInfo, id, hashed.Name([]byte(old))))
	k.until(func() bool { return metric(t, warnings, "not_bound_to_key") == 1 })
	k.put("kind: [")
	k.until(func() bool { return metric(t, reloads, id, "failure") == 1 })
	require.EqualValues(t, 1, metric(t, warnings, "not_bound_to_key"), "what is in use is as it was")
	k.Close()
	require.EqualValues(t, -1, metric(t, warnings, "not_bound_to_key"))
}

// Housekeeping goes on beside reads and writes: what they count comes to the metrics.
func TestWhatIsCountedComesToTheMetrics(t *testing.T) {
	k := keep(t, content("one"))
	const operations = "apiserver_storage_transformation_operations_total"
	before := metric(t, operations, "to_storage", "k8s:enc:aesgcm:v1:")
	_, err := k.Resources().TransformerForResource(secrets).TransformToStorage(t.Context(), []byte("v"), at)
	require.NoError(t, err)
	k.until(func() bool { return metric(t, operations, "to_storage", "k8s:enc:aesgcm:v1:") > max(before, 0) })
}

// What could not be made ready is kept for the next try, and for nothing else.
func TestATryIsKeptUntilTheNext(t *testing.T) {
	p := faultplugin.New(t) // it does not serve yet
	for name, end := range map[string]func(*following) (kept bool){
		"the next try": func(f *following) bool {
			_, err := f.build(t.Context(), []byte("kind: ["))
			require.Error(t, err)
			return false
		},
		"a failure that is tried on":   func(f *following) bool { f.failed(reload.Status{FailedHash: "sha256:1"}); return true },
		"a failure of another sort":    func(f *following) bool { f.failed(reload.Status{}); return false },
		"the file is as it was before": func(f *following) bool { f.cleared(reload.Status{}); return false },
	} {
		t.Run(name, func(t *testing.T) {
			k := keep(t, content("one"))
			f := &following{Keeper: k.Keeper, metrics: metrics.Reload{APIServerID: t.Name()}}
			_, err := f.build(t.Context(), []byte(sealedBy(p, "")))
			require.Error(t, err)
			tried := f.tried
			require.NotNil(t, tried)
			require.Len(t, k.before, 2)
			require.Same(t, k.Now(), k.before[0])
			require.Nil(t, k.before[1])

			if end(f) {
				require.Same(t, tried, f.tried)
				_, err = f.build(t.Context(), []byte(sealedBy(p, "# again\n")))
				require.Error(t, err)
				require.Same(t, tried, k.before[1], "the next is built beside it")
			} else {
				require.Nil(t, f.tried)
			}
			f.dropTried()
			require.Nil(t, f.tried)
		})
	}
}

func TestAContentThatIsMadeReadyIsTold(t *testing.T) {
	p := faultplugin.Start(t)
	p.Set(func(b *faultplugin.Behaviour) { b.Hang = true })
	k := keep(t, content("one"))
	defer k.follow()()
	next := sealedBy(p, "")
	k.put(next)
	k.until(func() bool { s := k.Status(); return s != nil && s.Outcome == healthz.Building })
	require.Equal(t, hashed.Name([]byte(next)), k.Status().BuildingHash)
	p.Set(func(b *faultplugin.Behaviour) { b.Hang = false })
	k.until(func() bool { return k.uses(next) })
}

func TestOneTokenIsForAllChangesSinceTheLast(t *testing.T) {
	k := keep(t, content("one"))
	f := &following{Keeper: k.Keeper, metrics: metrics.Reload{APIServerID: t.Name()}}
	for range 3 {
		f.loaded(k.Now(), reload.Status{Hash: "sha256:1", LoadedAt: time.Now()})
	}
	<-k.Changed()
	select {
	case <-k.Changed():
		t.Error("it was told twice")
	default:
	}
}

func TestWhoCannotFollowSaysWhy(t *testing.T) {
	k := keep(t, content("one"))
	k.options.Path = ""
	require.Error(t, k.Follow(t.Context()))
	require.Nil(t, k.Status())
}
