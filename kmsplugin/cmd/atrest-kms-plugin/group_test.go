package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A number that chown cuts off, or takes for "as it is", would let in another group.
func TestAGroupThatThereCannotBeIsAMistake(t *testing.T) {
	for _, group := range []string{"-1", "4294967295", "4294967296", "99999999999"} {
		_, err := gidOf(group)
		require.ErrorContains(t, err, "is no gid", group)
		require.Equal(t, exitUsage, exitCode(err))
	}
	gid, err := gidOf("4294967294")
	require.NoError(t, err)
	require.EqualValues(t, 4294967294, gid)
}
