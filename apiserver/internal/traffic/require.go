package traffic

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// patience bounds each wait. A stock apiserver looks at its file once a minute, and a
// rotation changes it three times.
const patience = 6 * time.Minute

// More returns once there were so many more reads and writes.
func (l *Load) More(t *testing.T, count int) {
	t.Helper()
	done := func() (writes, reads int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.writes, l.reads
	}
	writes, reads := done()
	Until(t, "there are more reads and writes", func() bool {
		w, r := done()
		return w >= writes+count && r >= reads+count
	})
}

// Counted is how much was read, and tried again, so far.
func (l *Load) Counted() (reads, retries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads, l.retries
}

// RequireNoFailure ends the load and requires that every request was answered well.
func (l *Load) RequireNoFailure(t *testing.T) {
	t.Helper()
	l.End()
	require.Empty(t, l.failures)
	require.Positive(t, l.reads)
	require.Positive(t, l.writes)
	t.Logf("%d writes and %d reads, none failed, %d were tried again", l.writes, l.reads, l.retries)
}

// RequireUndisturbed requires besides that nothing was tried again, by client-go neither.
func (l *Load) RequireUndisturbed(t *testing.T) {
	t.Helper()
	l.RequireNoFailure(t)
	require.Zero(t, l.retries)
	require.Empty(t, l.refused.all())
}

// Refused are the answers so far that were none, those of an outage and those after which
// client-go asked again by itself among them.
func (l *Load) Refused() []Refusal { return l.refused.all() }

// Acknowledged is of how many Secrets with one writer it is known that they are there.
func (l *Load) Acknowledged() int { return len(l.book.open().acked) }

// Current is nil if an apiserver has in its watch cache all that was acknowledged before,
// and knows each data key that it was written under.
func (l *Load) Current(ctx context.Context, apiserver string) error {
	for _, c := range l.clients {
		if c.apiserver == apiserver {
			return l.list(l.cached)(ctx, c)
		}
	}
	return fmt.Errorf("nothing is asked of an apiserver %q", apiserver)
}

// RequireRead ends the load and reads every Secret through every apiserver, one by one from
// etcd and all from the watch cache.
func (l *Load) RequireRead(t *testing.T) {
	t.Helper()
	l.End()
	at := l.book.open()
	for _, client := range l.clients {
		var all errgroup.Group
		all.SetLimit(8)
		for name := range at.acked {
			all.Go(func() error { return l.get(name, fromEtcd)(t.Context(), client) })
		}
		require.NoError(t, all.Wait(), client.apiserver)
		require.NoError(t, l.Current(t.Context(), client.apiserver), client.apiserver)
	}
}

// Until tries condition, in the test's own goroutine so that it may end the test, until
// it holds.
func Until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for !condition() {
		select {
		case <-pause.C:
		case <-ctx.Done():
			require.FailNow(t, "it did not come true that "+what)
		}
	}
}
