package metrics

import (
	"sync"

	"github.com/kube-atrest/atrest/internal/hashed"
	reloadmetrics "k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/component-base/metrics"
)

// reloads is kube-apiserver's own metric, which it has registered by then; see
// adopt. Its functions only count up.
var reloads = sync.OnceValue(func() *metrics.CounterVec {
	reloadmetrics.RegisterMetrics()
	return adopt(metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "apiserver", Subsystem: "encryption_config_controller",
		Name:           "automatic_reloads_total",
		Help:           "Total number of reload successes and failures of encryption configuration split by apiserver identity.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"status", "apiserver_id_hash"}))
})

// Reload records the fate of the EncryptionConfiguration of one apiserver.
type Reload struct{ APIServerID string }

// Started records the hash of the file that the server began with, and that no
// content was refused yet and none took effect: an alert sees how a count grows,
// and not that one appears.
func (r Reload) Started(inUse string) {
	for _, status := range []string{"success", "failure"} {
		reloads().WithLabelValues(status, hashed.ID(r.APIServerID))
	}
	reloadmetrics.RecordEncryptionConfigLastConfigInfo(r.APIServerID, inUse)
}

// Succeeded records that the content of that hash took effect.
func (r Reload) Succeeded(hash string) {
	reloadmetrics.RegisterMetrics()
	reloadmetrics.RecordEncryptionConfigAutomaticReloadSuccess(r.APIServerID, hash)
}

// Failed records that a content was refused.
func (r Reload) Failed() {
	reloadmetrics.RegisterMetrics()
	reloadmetrics.RecordEncryptionConfigAutomaticReloadFailure(r.APIServerID)
}
