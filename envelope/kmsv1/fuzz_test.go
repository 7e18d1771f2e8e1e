package kmsv1

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value"
)

// FuzzRecord holds the reader to its promise: any bytes give a value or an
// error, unchanged; what opens means the same to kube-apiserver; what it opens
// as AES-GCM opens here; and what can be taken apart is put together again.
func FuzzRecord(f *testing.F) {
	files, err := os.ReadDir("testdata/fuzz/" + f.Name())
	require.NoError(f, err)
	require.NotEmpty(f, files, "the committed corpus")
	kube := theirs(newFaultyPlugin(), asOf125)
	f.Fuzz(func(t *testing.T, payload, etcdKey []byte) {
		before := bytes.Clone(payload)
		at := value.DefaultContext(etcdKey)
		got, _ := readCold(t, payload, at)
		require.Equal(t, before, payload)
		want := readTheirs(kube, payload, at)
		requireNoMore(t, want, got)
		if want.opened && !want.stale {
			require.Equal(t, want, got)
		}
		if wrapped, data, ok := split(payload); ok {
			require.Equal(t, payload, append([]byte(head("", wrapped)), data...))
		}
	})
}
