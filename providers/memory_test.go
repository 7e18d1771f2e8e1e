package providers_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/internal/metrics"
	"github.com/kube-atrest/atrest/internal/stored"
	"github.com/kube-atrest/atrest/reload"
)

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// things is one of many custom resources.
func things(i int) schema.GroupResource {
	return schema.GroupResource{Group: "example.com", Resource: fmt.Sprint("things", i)}
}

// A server has custom resources by the thousands, most of them with few objects
// or none, and when one is changed it is served anew. Not counted are the series
// that kube-apiserver's own metrics have for each resource that was written or
// read, which stay in the registry as they do in kube-apiserver.
func TestResourcesThatComeAndGoTakeLessThanAKiBAndGiveItBack(t *testing.T) {
	const n, most, left = 10_000, 1 << 10, 100
	for i := range n {
		for _, direction := range []string{"to_storage", "from_storage"} {
			value.RecordTransformation(things(i).String(), direction, stored.AESGCM.Prefix, 0, nil)
		}
	}
	for _, procs := range []int{2, 16, 64} {
		t.Run(fmt.Sprint(procs, " processors"), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			set := reload.NewSet(built(t, nil, fileOf(rule("'*.*'", gcmKey, identity))), reload.SetOptions{})
			defer set.Close()
			metrics.Flush()
			served := make([]value.Transformer, n)
			empty := heap()
			each := func() int64 { return (heap() - empty) / n }

			for i := range served {
				served[i] = set.TransformerForResource(things(i))
			}
			unused := each()
			for _, s := range served {
				data, err := s.TransformToStorage(t.Context(), []byte("v"), at)
				require.NoError(t, err)
				_, _, err = s.TransformFromStorage(t.Context(), data, at)
				require.NoError(t, err)
			}
			used := each()
			t.Logf("bytes of each: %d unused, %d written and read", unused, used)
			require.Less(t, unused, int64(most))
			require.Less(t, used, int64(most))
			clear(served)
			require.Eventually(t, func() bool { metrics.Flush(); return each() < left }, 30*time.Second, time.Millisecond)
		})
	}
}
