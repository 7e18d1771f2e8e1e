package metrics

import (
	"crypto/sha256"
	"fmt"

	reloadmetrics "k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
)

// Reload records the fate of the EncryptionConfiguration of one apiserver.
type Reload struct{ APIServerID string }

// Started records the hash of the file that the server began with.
func (r Reload) Started(hash string) {
	reloadmetrics.RegisterMetrics()
	reloadmetrics.RecordEncryptionConfigLastConfigInfo(r.APIServerID, hash)
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

// hash is how identifiers are shown in labels, as in kube-apiserver.
func hash(id string) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(id)))
}
