package hashed

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	const one = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b" // sha256sum of "1"
	require.Equal(t, one, Name([]byte("1")))
	require.Equal(t, one, ID("1"))
	require.Empty(t, ID(""))
	require.Equal(t, "sha256:6b86b273ff34…", Short(one))
	require.Equal(t, "sha256:6b86b273ff34", Short("sha256:6b86b273ff34"))
	require.Empty(t, Short(""))
	for _, s := range []string{one, "", "1", one[:70], one + "0", " " + one, one + "\n", "sha256:6B" + one[9:]} {
		require.Equal(t, s == one, IsName(s), s)
	}
}
