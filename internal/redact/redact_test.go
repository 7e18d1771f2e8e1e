package redact_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/redact"
)

type key struct {
	redact.As
	Bytes []byte
}

func TestNoVerbAndNoEncoderReachesTheKey(t *testing.T) {
	k := key{As: "DEK", Bytes: []byte("sesame")}
	for _, v := range []any{k, &k, struct{ K key }{k}, []key{k}, map[string]*key{"k": &k}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
			require.NotContains(t, fmt.Sprintf(verb, v), "sesame")
			require.NotContains(t, fmt.Sprintf(verb, v), "736573616d65")
			require.NotContains(t, fmt.Sprintf(verb, v), "115 101")
		}
		out, err := json.Marshal(v)
		require.NoError(t, err)
		require.NotContains(t, string(out), "c2VzYW1l")
	}
	require.Equal(t, "DEK (redacted)", fmt.Sprint(k))
	require.Equal(t, "(redacted)", fmt.Sprint(key{}))
}
