package providers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/transformer"
)

// A provider keeps no key but its expanded one: the copy that it was made of is
// overwritten, and the one of the file stays what it is.
func TestACopyOfAKeyIsOverwrittenOnceItsCipherIsMade(t *testing.T) {
	c, err := config.Parse([]byte(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{aesgcm: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZg==}, {name: b, secret: ZmVkY2JhOTg3NjU0MzIxMA==}]}}]
`), config.Options{})
	require.NoError(t, err)
	provider := c.Providers()[0]
	var given, seen [][]byte
	b := builder{Transformers: &Transformers{}}
	_, err = b.keyEntries(provider, func(secret []byte) (transformer.Provider, error) {
		given, seen = append(given, secret), append(seen, append([]byte(nil), secret...))
		return transformer.Identity(), nil
	})
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("0123456789abcdef"), []byte("fedcba9876543210")}, seen)
	require.Equal(t, [][]byte{make([]byte, 16), make([]byte, 16)}, given)
	require.Equal(t, seen[0], provider.Keys()[0].Secret(), "a file may be built many times")
}
