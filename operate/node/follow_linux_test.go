package node

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who waits for the exit code 0 of "atrest node status" goes on to the next bundle at the first report that says
// so: another apiserver may write what this one cannot read yet.
func TestNoReportSaysThatAllIsAsItIsWantedWhileTheApiserverHasTheFormerFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runs()
	r.end()
	r.api.set(func(p *played) { p.follow = "" }) // it goes on with what it has
	r.give(r.draft(2, 2, 1))
	n, err := New(r.o)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		require.NoError(t, n.Run(ctx))
	})
	asks := &apiserver{asker: r.api, clk: r.o.Clock, placed: &n.placed}
	n.apiservers = append(n.apiservers, watching(ctx, r.o.Clock, r.o.AskEvery, asks.ask, n.again))
	round := func() *Report {
		n.round(ctx)
		report := n.Report()
		require.NotEmpty(t, append(report.Waits, report.Problems...))
		return report
	}
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		if report := round(); report.InEffect != nil && report.InEffect.Revision == 2 {
			round()
			return
		}
		select {
		case <-n.wake:
		case <-time.After(r.o.Every):
		}
	}
	t.Fatal("it did not come into effect")
}
