package metrics

import (
	"fmt"
	"testing"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/stretchr/testify/require"
)

// reloadsOf is how many reloads of an apiserver ended with a status, -1 if
// nothing is told of those.
func reloadsOf(t *testing.T, r Reload, status string) float64 {
	return sampleOf(t, "apiserver_encryption_config_controller_automatic_reloads_total",
		"apiserver_id_hash="+hashed.ID(r.APIServerID), "status="+status)
}

// Prometheus's increase() does not see a series that begins at 1, and so not the
// first bad file.
func TestReloadsAreToldFromTheStartOnAndInKubeAPIServersOwnMetric(t *testing.T) {
	r := Reload{APIServerID: fmt.Sprint("reloads-", runs.Add(1))}
	require.InDelta(t, -1, reloadsOf(t, r, "failure"), 0)
	r.Started("sha256:1")
	require.InDelta(t, 0, reloadsOf(t, r, "failure"), 0)
	require.InDelta(t, 0, reloadsOf(t, r, "success"), 0)

	r.Failed()
	r.Succeeded("sha256:2")
	r.Succeeded("sha256:3")
	require.InDelta(t, 1, reloadsOf(t, r, "failure"), 0)
	require.InDelta(t, 2, reloadsOf(t, r, "success"), 0)

	r.Started("sha256:3")
	require.InDelta(t, 1, reloadsOf(t, r, "failure"), 0, "another start in this process takes nothing back")
}
