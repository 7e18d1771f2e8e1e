package plugin

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAbstractSocketIsOfRootOrOfThisUser(t *testing.T) {
	require.NoError(t, admit(0, 1000))
	require.NoError(t, admit(1000, 1000))
	require.ErrorContains(t, admit(1001, 1000), "uid 1001 listens")
	require.ErrorContains(t, admit(1001, 0), "only root and uid 0")
	require.ErrorContains(t, admit(65534, 65534), "uid 65534 listens", "it may be anybody whom this namespace does not know")
}
