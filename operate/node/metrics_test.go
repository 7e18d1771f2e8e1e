package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A node that waits for a disk tells what it told before.
func TestMetricsTellOfWhenTheyAre(t *testing.T) {
	require.Contains(t, (&Report{At: time.Unix(1_000, 0)}).Metrics(), "\natrest_node_looked_timestamp_seconds 1000\n")
	require.NotContains(t, (&Report{}).Metrics(), "\natrest_node_looked_timestamp_seconds")
}
