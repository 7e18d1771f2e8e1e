package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/internal/etcdtest"
)

func TestTheBar(t *testing.T) {
	for want, c := range map[string]struct {
		done, total int64
		took        time.Duration
	}{
		"[===============               ]  50%  5000 of 10000 objects, 500/s, 10s left": {5000, 10000, 10 * time.Second},
		"[                              ]   0%  0 of 10 objects, 0/s, 2h46m40s left":    {0, 10, time.Second},
		"[==============================] 100%  20 of 10 objects, 20/s, 0s left":        {20, 10, time.Second},
		"[==============================] 100%  0 of 0 objects, 0/s, 0s left":           {0, 0, 0},
	} {
		require.Equal(t, want, barText(c.done, c.total, c.took))
	}
}

func TestNoBarWithoutATerminal(t *testing.T) {
	var stderr bytes.Buffer
	on, end := progress(&stderr)
	on(1, 2)
	end()
	require.Empty(t, stderr.String())
}

func TestACancelledCommandHasNoAnswer(t *testing.T) {
	server := etcdtest.Start(t)
	server.Store("/registry/pods/a", []byte("{}"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"audit", "--endpoints", server.Endpoint()}, streams{in: &bytes.Buffer{}, out: &stdout, err: &stderr})
	require.Equal(t, exitNoAnswer, code)
	require.Empty(t, stdout.String())
	require.Contains(t, stderr.String(), "canceled")
}

func TestSizes(t *testing.T) {
	for want, n := range map[string]int64{"0 B": 0, "1023 B": 1023, "1 KiB": 1024, "1.5 KiB": 1536, "2 MiB": 2 << 20, "3 GiB": 3 << 30, "5120 TiB": 5 << 50} {
		require.Equal(t, want, size(n))
	}
}
