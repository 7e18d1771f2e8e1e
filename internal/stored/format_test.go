package stored_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/stored"
)

// What is in etcd does not change with a constant here.
func TestTheFormsAreThoseOfKubeAPIServer(t *testing.T) {
	require.Equal(t, [...]stored.Format{
		{Kind: "aescbc", Prefix: "k8s:enc:aescbc:v1:", NameOf: "key"},
		{Kind: "aesgcm", Prefix: "k8s:enc:aesgcm:v1:", NameOf: "key", BoundToKey: true},
		{Kind: "secretbox", Prefix: "k8s:enc:secretbox:v1:", NameOf: "key"},
		{Kind: "kms v1", Prefix: "k8s:enc:kms:v1:", NameOf: "provider", BoundToKey: true},
		{Kind: "kms v2", Prefix: "k8s:enc:kms:v2:", NameOf: "provider", BoundToKey: true},
	}, stored.Formats)
}

func TestAValueIsIdentifiedByItsPrefix(t *testing.T) {
	for _, f := range stored.Formats {
		longest := strings.Repeat("x", 253)
		for prefix, name := range map[string]string{
			"a:": "a", "a:b:": "a", ":": "", "\xff:": "?", longest + ":": longest,
		} {
			got, gotName, ok := stored.Identify([]byte(f.Prefix + prefix + "payload"))
			require.True(t, ok)
			require.Equal(t, f, got)
			require.Equal(t, name, gotName)
		}
		require.Equal(t, f.Prefix+"a:", f.PrefixFor("a"))
		for _, unended := range []string{"", "a", longest + "x:", strings.Repeat("x", 1<<20)} {
			got, name, ok := stored.Identify([]byte(f.Prefix + unended))
			require.False(t, ok)
			require.Equal(t, f, got, "the form is known all the same")
			require.Empty(t, name)
		}
		require.True(t, stored.IsEncrypted([]byte(f.Prefix)))
	}
	for value, encrypted := range map[string]bool{
		"": false, "k8s": false, "k8s:enc": false, "k8s:enc:": true, "k8s:enc:rot13:v1:a:x": true,
		"k8s\x00\n\f": false, `{"kind":"Secret"}`: false, "K8S:ENC:kms": false,
	} {
		_, _, ok := stored.Identify([]byte(value))
		require.False(t, ok, value)
		require.Equal(t, encrypted, stored.IsEncrypted([]byte(value)), value)
	}
}
