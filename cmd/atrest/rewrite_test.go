package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/migrate"
)

func TestLinesAboutARunThatNobodyWatches(t *testing.T) {
	var stderr bytes.Buffer
	show, end := rewriting(&stderr, "secrets")
	p := migrate.Progress{Counts: migrate.Counts{Seen: 50, Rewritten: 40}, Total: 100, PerSecond: 4, Left: 12500 * time.Millisecond}
	for _, at := range []time.Duration{time.Second, 10 * time.Second, 11 * time.Second, 25 * time.Second} {
		p.Elapsed = at
		show(p)
	}
	end()
	const at, line = `20[0-9-]{8}T[0-9:]{8}Z `, "secrets: 50 of 100 objects, 40 rewritten, 4/s, 13s left\n"
	require.Regexp(t, "^"+at+line+at+line+at+"secrets: 40 rewritten, 0 unchanged, 0 gone, 0 failed, in 25s\n$", stderr.String())
	p.Left, p.Total = -1, 0
	require.Equal(t, "50 of 50 objects, 40 rewritten, 4/s, time left not known", rewritingText(p))
	p.Counts.Failed = 3
	require.Equal(t, "50 of 50 objects, 40 rewritten, 3 failed, 4/s, time left not known", rewritingText(p))
}
