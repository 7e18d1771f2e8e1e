package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
)

var secrets = schema.GroupResource{Resource: "secrets"}

// Both recorders must end up in one metric: otherwise ours is invisible.
func TestOperationsAreKubeAPIServersOwnMetrics(t *testing.T) {
	value.RecordTransformation("secrets", "to_storage", "k8s:enc:shared:", time.Millisecond, nil)
	NewOperation(secrets, ToStorage, "k8s:enc:shared:").Record(Now(), nil)
	Flush()

	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP apiserver_storage_transformation_operations_total [ALPHA] Total number of transformations. Successful transformation will have a status 'OK' and a varied status string when the transformation fails. The status, resource, and transformation_type fields can be used for alerting purposes. For example, you can monitor for encryption/decryption failures using the transformation_type (e.g., from_storage for decryption and to_storage for encryption). Additionally, these fields can be used to ensure that the correct transformers are applied to each resource.
# TYPE apiserver_storage_transformation_operations_total counter
apiserver_storage_transformation_operations_total{resource="secrets",status="OK",transformation_type="to_storage",transformer_prefix="k8s:enc:shared:"} 2
`), "apiserver_storage_transformation_operations_total"))
	require.Equal(t, uint64(2), observations(t, "to_storage", "k8s:enc:shared:"))
}

func observations(t *testing.T, direction, prefix string) uint64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != "apiserver_storage_transformation_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["transformation_type"] == direction && labels["transformer_prefix"] == prefix {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	return 0
}

func TestFailuresCarryTheCodeOfThePlugin(t *testing.T) {
	for err, want := range map[error]string{
		nil:               "OK",
		errors.New("bad"): "unknown-non-grpc",
		fmt.Errorf("decrypt: %w", status.Error(codes.Unavailable, "gone")): "Unavailable",
	} {
		require.Equal(t, want, codeOf(err))
	}
	o := NewOperation(secrets, FromStorage, "k8s:enc:failing:")
	o.Record(Now(), status.Error(codes.Unavailable, "gone"))
	Flush()
	require.Zero(t, observations(t, "from_storage", "k8s:enc:failing:"), "failures are not timed")
}

func TestRecordingASuccessAllocatesNothing(t *testing.T) {
	o := NewOperation(secrets, FromStorage, "k8s:enc:alloc:")
	start := Now()
	require.Zero(t, testing.AllocsPerRun(100, func() { o.Record(start, nil) }))
}

func BenchmarkRecord(b *testing.B) {
	o := NewOperation(secrets, FromStorage, "k8s:enc:bench:")
	for b.Loop() {
		o.Record(Now(), nil)
	}
}

// BenchmarkRecordParallel shows whether processors wait for each other.
func BenchmarkRecordParallel(b *testing.B) {
	o := NewOperation(secrets, FromStorage, "k8s:enc:bench:")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o.Record(Now(), nil)
		}
	})
}
