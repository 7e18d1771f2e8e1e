package providers

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/envelope"
	"github.com/kube-atrest/atrest/envelope/kmsv1"
	"github.com/kube-atrest/atrest/internal/faultplugin"
)

func fileV1(cacheSize int) []byte {
	return fmt.Appendf(nil, `
kind: EncryptionConfiguration
apiVersion: apiserver.config.k8s.io/v1
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v1, name: old, endpoint: unix:///run/old.sock, cachesize: %d}
  - identity: {}
`, cacheSize)
}

// A reload keeps the plugin of an entry that did not change, and nothing is left
// of one that did.
func TestKMSv1IsBuiltAndTakenOver(t *testing.T) {
	var dialled []*faultplugin.V1
	build := func(cacheSize int, previous *Transformers) *Transformers {
		c, err := config.Parse(fileV1(cacheSize), config.Options{File: "f", Reload: true, KMSv1: true})
		require.NoError(t, err)
		built, err := Build(c, Options{
			DialV1: func(envelope.Endpoint, time.Duration, envelope.Recorder) (kmsv1.Plugin, error) {
				p := &faultplugin.V1{}
				dialled = append(dialled, p)
				return p, nil
			},
		}, previous)
		require.NoError(t, err)
		built.Commit(func() {})
		require.NoError(t, built.Prepare(t.Context()))
		return built
	}
	secrets, at := schema.GroupResource{Resource: "secrets"}, value.DefaultContext("/registry/secrets/a/b")
	first := build(10, nil)
	out, err := first.TransformerForResource(secrets).TransformToStorage(t.Context(), []byte("v"), at)
	require.NoError(t, err)
	require.Contains(t, string(out), "k8s:enc:kms:v1:old:")

	second := build(10, first)
	require.Len(t, dialled, 1)
	first.Close()
	require.Zero(t, dialled[0].Closes.Load())
	require.Equal(t, 1, second.Health()[0].CachedDEKs)
	got, stale, err := second.TransformerForResource(secrets).TransformFromStorage(t.Context(), out, at)
	require.NoError(t, err)
	require.False(t, stale)
	require.Equal(t, "v", string(got))
	second.Tend(time.Now())
	require.EqualValues(t, 1, second.Health()[0].Reads)

	third := build(20, second)
	require.Len(t, dialled, 2, "another size of the cache is another cache")
	second.Close()
	require.EqualValues(t, 1, dialled[0].Closes.Load())
	third.Close()
	require.EqualValues(t, 1, dialled[1].Closes.Load())
}
