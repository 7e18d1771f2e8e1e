package lookahead

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThePageSaysWhatLookingAheadCosts(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	for _, row := range []string{
		fmt.Sprintf("| bytes of a resource | 1/%d of what it has in etcd, and %d MiB; small resources together may exceed it by %d KiB |",
			share, mostBytes>>20, spareBytes>>10),
		fmt.Sprintf("| reads in a resource | %d, of at most %d objects and about %d KiB each |", mostPages, maxPage, pageBytes>>10),
		fmt.Sprintf("stops when %d reads in a row bring none", patience),
	} {
		require.Contains(t, string(text), row)
	}
	require.Contains(t, string(text), "| time | a minute for each resource, four resources at once |")
	require.Equal(t, time.Minute, within)
	require.Equal(t, 4, resourcesAtOnce)
}
