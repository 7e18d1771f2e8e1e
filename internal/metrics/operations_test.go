package metrics

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/tally"
)

var (
	secrets = &schema.GroupResource{Resource: "secrets"}
	runs    atomic.Int64
)

// prefixFor is a prefix that nothing was counted under in this process.
func prefixFor(t testing.TB) string {
	return fmt.Sprintf("k8s:enc:%s-%d:", strings.ToLower(t.Name()), runs.Add(1))
}

// totalOf are the operations of a prefix that are in the registry.
func totalOf(t *testing.T, direction Direction, prefix, status string) float64 {
	t.Helper()
	return max(sampleOf(t, "apiserver_storage_transformation_operations_total", "resource=secrets",
		"transformation_type="+string(direction), "transformer_prefix="+prefix, "status="+status), 0)
}

// timedOf are those of them that were timed.
func timedOf(t *testing.T, direction Direction, prefix string) float64 {
	t.Helper()
	return max(sampleOf(t, "apiserver_storage_transformation_duration_seconds",
		"transformation_type="+string(direction), "transformer_prefix="+prefix), 0)
}

// Both recorders must end up in one metric: otherwise ours is invisible.
func TestOperationsAreKubeAPIServersOwnMetrics(t *testing.T) {
	prefix := prefixFor(t)
	value.RecordTransformation("secrets", string(ToStorage), prefix, time.Millisecond, nil)
	NewOperation(secrets, ToStorage, prefix).Record(tally.Pick(), Now(), nil)
	Flush()
	require.InDelta(t, 2, totalOf(t, ToStorage, prefix, "OK"), 0)
	require.InDelta(t, 2, timedOf(t, ToStorage, prefix), 0)
}

func TestFailuresCarryTheCodeOfThePlugin(t *testing.T) {
	for err, want := range map[error]string{
		nil:               "OK",
		errors.New("bad"): "unknown-non-grpc",
		fmt.Errorf("decrypt: %w", status.Error(codes.Unavailable, "gone")): "Unavailable",
	} {
		require.Equal(t, want, codeOf(err))
	}
	prefix := prefixFor(t)
	o := NewOperation(secrets, FromStorage, prefix)
	o.Record(tally.Pick(), Now(), status.Error(codes.Unavailable, "gone"))
	Flush()
	require.InDelta(t, 1, totalOf(t, FromStorage, prefix, "Unavailable"), 0)
	require.Zero(t, timedOf(t, FromStorage, prefix), "failures are not timed")
	require.Nil(t, o.counts.Load())
}

func TestRecordingASuccessAllocatesNothing(t *testing.T) {
	o := NewOperation(secrets, FromStorage, prefixFor(t))
	at, start := tally.Pick(), Now()
	require.Zero(t, testing.AllocsPerRun(100, func() { o.Record(at, start, nil) }))
}

func BenchmarkRecord(b *testing.B) {
	o := NewOperation(secrets, FromStorage, prefixFor(b))
	at := tally.Pick()
	for b.Loop() {
		o.Record(at, Now(), nil)
	}
}
