package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kube-atrest/atrest/apiserver/internal/harness"
	"github.com/kube-atrest/atrest/operate/migrate"
)

var migrations = schema.GroupVersionResource{Group: "storagemigration.k8s.io", Version: "v1beta1", Resource: "storageversionmigrations"}

const migrationName = "encryption-migration-core-secrets"

func TestAServerWithoutMigrationsSaysSo(t *testing.T) {
	t.Parallel()
	r := newReal(t, harness.HurriedServer)
	_, err := r.api.Delegate(t.Context())
	require.ErrorIs(t, err, migrate.ErrNotServed)
}

// No kube-controller-manager runs here, so nobody takes a migration up. The test
// says in its place how the migration ended; what the server checks of the objects
// is real.
func TestMigrationsOfARealServer(t *testing.T) {
	t.Parallel()
	r := newReal(t, harness.StockServer, migrationFlags()...)
	d, err := r.api.Delegate(t.Context())
	require.NoError(t, err)
	w := migrate.Wanted{Resource: secrets, KeyID: "sha256:1", Round: 1, TakeUp: time.Millisecond}
	require.ErrorIs(t, d.Migrate(t.Context(), w), migrate.ErrNotTakenUp)

	m, err := r.Dynamic.Resource(migrations).Get(t.Context(), migrationName, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, map[string]string{migrate.KeyIDAnnotation: "sha256:1", migrate.RoundAnnotation: "1"}, m.GetAnnotations())
	resource, _, err := unstructured.NestedString(m.Object, "spec", "resource", "resource")
	require.NoError(t, err)
	require.Equal(t, "secrets", resource)

	r.ends("Failed")
	w.TakeUp = time.Minute
	done := make(chan error)
	go func() { done <- d.Migrate(t.Context(), w) }()
	require.Eventually(t, func() bool { // it is made again, as it had failed
		again, err := r.Dynamic.Resource(migrations).Get(t.Context(), migrationName, metav1.GetOptions{})
		return err == nil && again.GetUID() != m.GetUID()
	}, time.Minute, 50*time.Millisecond)
	r.ends("Failed")
	var failed *migrate.FailedError
	require.ErrorAs(t, <-done, &failed)
	require.Equal(t, "because", failed.Message)

	w.Round = 2
	go func() { done <- d.Migrate(t.Context(), w) }()
	require.Eventually(t, func() bool {
		again, err := r.Dynamic.Resource(migrations).Get(t.Context(), migrationName, metav1.GetOptions{})
		return err == nil && again.GetAnnotations()[migrate.RoundAnnotation] == "2"
	}, time.Minute, 50*time.Millisecond)
	r.ends("Succeeded")
	require.NoError(t, <-done)
	require.NoError(t, d.Migrate(t.Context(), w), "what is done for the same is awaited, not made again")
}

// ends has a migration end, as a controller would.
func (r *real) ends(condition string) {
	r.t.Helper()
	m, err := r.Dynamic.Resource(migrations).Get(r.t.Context(), migrationName, metav1.GetOptions{})
	require.NoError(r.t, err)
	at := map[string]any{"type": condition, "status": "True", "reason": "Test", "message": "because", "lastTransitionTime": "2026-11-21T00:00:00Z"}
	require.NoError(r.t, unstructured.SetNestedSlice(m.Object, []any{at}, "status", "conditions"))
	require.NoError(r.t, unstructured.SetNestedField(m.Object, m.GetResourceVersion(), "status", "resourceVersion"))
	_, err = r.Dynamic.Resource(migrations).UpdateStatus(r.t.Context(), m, metav1.UpdateOptions{})
	require.NoError(r.t, err)
}
