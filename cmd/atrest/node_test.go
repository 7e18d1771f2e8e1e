package main

import (
	"strings"
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

func TestAnApiserverThatDoesNotTellIsNamed(t *testing.T) {
	var to strings.Builder
	r := &node.Report{InMemory: true, Apiservers: []node.ApiserverReport{{Name: "one", Problem: "it is away"}, {Name: "two"}}}
	require.NoError(t, printNode(&to, r))
	require.Contains(t, to.String(), "\napiserver one has not told which file it has in effect: it is away\n")
	require.NotContains(t, to.String(), "two")
}
