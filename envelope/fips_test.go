package envelope

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
)

// counted skips what is about counted nonces where the runtime refuses them.
func counted(t testing.TB) {
	t.Helper()
	if err := CheckWriteMode(Counter); err != nil {
		t.Skip(err)
	}
}

// The runtime's mode cannot be changed while it runs, so the test runs itself.
func TestUnderFIPS140OnlySeedWritesAndBothAreRead(t *testing.T) {
	const inside = "ATREST_TEST_FIPS140_ONLY"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=only", inside+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	require.ErrorContains(t, CheckWriteMode(Counter), `use "seed"`)
	require.NoError(t, CheckWriteMode(Seed))
	r := newRig(t, func(o *Options) { o.Mode = Seed })
	got, stale := r.read(r.write("value"))
	require.Equal(t, "value", got)
	require.False(t, stale)
	TestGoldenRecords(t)
	// kube-apiserver's own transformer writes nothing there.
	plugin := newFaultyPlugin()
	tr, enc, key, err := kmsv2.GenerateTransformer(t.Context(), "uid", serviceOf{plugin}, true)
	require.NoError(t, err)
	kube := kmsv2.NewEnvelopeTransformer(serviceOf{plugin}, "test", func() (kmsv2.State, error) {
		return kmsv2.State{
			Transformer: tr, EncryptedObjectKeyID: enc.KeyID, EncryptedObjectEncryptedDEKSource: enc.EncryptedDEKSource,
			EncryptedObjectEncryptedDEKSourceType: enc.EncryptedDEKSourceType, UID: "uid",
			ExpirationTimestamp: testStart.AddDate(100, 0, 0), CacheKey: key,
		}, nil
	}, "apiserver")
	_, err = kube.TransformToStorage(t.Context(), []byte("value"), testKey)
	require.ErrorContains(t, err, "FIPS 140-only mode")
}
