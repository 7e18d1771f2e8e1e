package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/node"
)

func TestAReportThatIsOldTellsNothing(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r := &node.Report{At: now, InEffect: &node.Revision{Revision: 1}}
	require.NoError(t, nodeAnswer(r, now.Add(time.Second)))
	for _, at := range []time.Time{now.Add(2 * time.Minute), now.Add(-2 * time.Minute)} { // a clock may be set back
		err := nodeAnswer(r, at)
		require.ErrorContains(t, err, "has not looked since")
		require.Equal(t, 2, exitCode(err))
	}
}
