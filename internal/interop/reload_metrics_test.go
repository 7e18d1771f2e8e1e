package interop

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	reloadmetrics "k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/kube-atrest/atrest/internal/metrics"
)

// reloadSamples are kube-apiserver's metrics of reloads, of one server: counts
// as they are, and 1 for a time.
func reloadSamples(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	found := map[string]float64{}
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "apiserver_encryption_config_controller_")
		if !ok {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			found[name+" "+strings.Join(labels, " ")] = m.GetCounter().GetValue() + min(m.GetGauge().GetValue(), 1)
		}
	}
	return found
}

// What this library tells of reloads are kube-apiserver's own metrics: the
// hash of the content in use replaces the one before, failures and successes
// are counted and have a time.
func TestReloadsAreToldAsInKubeAPIServer(t *testing.T) {
	reloadmetrics.RegisterMetrics()
	reloadmetrics.ResetMetricsForTest()
	reloadmetrics.RecordEncryptionConfigLastConfigInfo("server", "sha256:first")
	reloadmetrics.RecordEncryptionConfigAutomaticReloadFailure("server")
	reloadmetrics.RecordEncryptionConfigAutomaticReloadSuccess("server", "sha256:second")
	theirs := reloadSamples(t)

	reloadmetrics.ResetMetricsForTest()
	r := metrics.Reload{APIServerID: "server"}
	r.Started("sha256:first")
	r.Failed()
	r.Succeeded("sha256:second")
	require.Equal(t, theirs, reloadSamples(t))
	require.Len(t, theirs, 5, "two counts, two times, one hash")
}
