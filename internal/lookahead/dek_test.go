package lookahead

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/stored"
)

func TestDEKsAreToldApartByWhatIsInTheClear(t *testing.T) {
	d := newDEKs()
	require.True(t, d.meet(sealed(1, 10)))
	require.False(t, d.meet(sealed(1, 10)))
	require.False(t, d.meet(sealed(1, 3000)), "of other data, under the same DEK")
	require.True(t, d.meet(sealed(2, 10)))
	require.False(t, d.meet(sealed(2, 10)))
	require.Len(t, d.met, 2)
}

func TestWhatHasNoDEK(t *testing.T) {
	for name, value := range map[string]string{
		"nothing":            "",
		"plaintext":          "k8s\x00\n\x03abc",
		"JSON":               `{"kind":"Secret"}`,
		"KMS v1":             stored.KMSv1.PrefixFor("test") + "\x00\x10abc",
		"a key of the file":  stored.AESGCM.PrefixFor("key1") + "abc",
		"the prefix alone":   stored.KMSv2.Prefix,
		"a name without end": stored.KMSv2.Prefix + "test",
		"no payload":         stored.KMSv2.PrefixFor("test"),
		"not an object":      stored.KMSv2.PrefixFor("test") + "abc",
		"cut off":            string(sealed(1, 3000)[:1000]),
	} {
		require.False(t, newDEKs().meet([]byte(value)), name)
	}
}
