package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/stored"
)

// A cluster moves from the stock server to this library and back while it serves, and the
// plugin's key is rotated each time both are there. Every object reads and updates
// through every server at every moment.
func TestAClusterMovesHereAndBackWhileItServes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)

	f.start(t, "stock")
	f.write(t, "stock")

	f.start(t, "counter", "seed")
	f.write(t, "counter")
	f.write(t, "seed")
	f.share(t, f.objects)
	f.rotate(t)
	f.requireSettled(t)
	f.requireRewrites(t)

	f.stop("stock")
	f.share(t, f.objects)
	f.requireSettled(t)

	f.start(t, "stock")
	f.share(t, f.objects)
	f.rotate(t)
	f.requireSettled(t)

	f.stop("counter", "seed")
	f.share(t, f.objects)
	f.requireSettled(t)
}

// requireRewrites holds each pair of members to whether an update without a change by one
// writes again what the other wrote under the same key_id.
func (f *fleet) requireRewrites(t *testing.T) {
	t.Helper()
	o := f.secrets()[0]
	for _, c := range []struct {
		writer, updater string
		rewrites        bool
	}{
		{"stock", "counter", false},
		{"stock", "seed", false},
		{"seed", "stock", false},
		{"seed", "counter", false},
		{"counter", "seed", false},
		{"counter", "stock", true}, // type 0 is stale to it: it writes type 1, once
	} {
		f.touch(t, o, c.writer)
		require.Equal(t, c.rewrites, o.update(t, f.running[c.updater]), "%+v", c)
		if c.rewrites {
			require.Equal(t, stored.SourceSeed, f.source(t, o).Type)
		}
		for _, name := range []string{c.writer, c.updater, c.writer} {
			require.False(t, o.update(t, f.running[name]), "%s writes again: %+v", name, c)
		}
	}
}
