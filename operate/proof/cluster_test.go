package proof

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatIsOfTheSameCluster(t *testing.T) {
	require.NoError(t, SameCluster("a.db", "one", "the apiservers", "one"))
	require.EqualError(t, SameCluster("a.db", "two", "the apiservers", "one"),
		"a.db is of another cluster than the apiservers: its namespace kube-system has another UID: name one of the same cluster")
	for _, uids := range [][2]string{{"", "one"}, {"one", ""}, {"", ""}} {
		require.ErrorIs(t, SameCluster("a.db", uids[0], "the apiservers", uids[1]), ErrNoUID)
	}
}
