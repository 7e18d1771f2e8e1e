package plugin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Calls wait for a plugin that has just gone, and not for the next dial of a long row.
func TestWhileCallsWaitTheSocketIsDialledOften(t *testing.T) {
	now := time.Now()
	for useless := 1; useless < 100; useless++ {
		young := &link{useless: useless, dialled: now, down: now.Add(time.Hour)}
		require.LessOrEqual(t, young.redialAt().Sub(now), youngRedial)
	}
	old := &link{useless: 100, dialled: now, down: now.Add(-patience)}
	require.Equal(t, lastRedial, old.redialAt().Sub(now))
	require.Less(t, youngRedial, patience/2)
}
