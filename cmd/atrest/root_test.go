package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody writes to standard input, and Ctrl-C ends the wait for it.
func TestTheWaitForStandardInputCanBeInterrupted(t *testing.T) {
	silent, writer := io.Pipe()
	t.Cleanup(func() { _ = writer.Close() })
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	var told bytes.Buffer
	require.Equal(t, exitNoAnswer, run(ctx, []string{"check", "-"}, streams{in: silent, out: io.Discard, err: &told}))
	require.Contains(t, told.String(), "read standard input: interrupted")
}

func TestWhatComesFromStandardInputIsWhole(t *testing.T) {
	long := strings.Repeat("0123456789", 10000)
	got, err := io.ReadAll(interruptible{t.Context(), strings.NewReader(long)})
	require.NoError(t, err)
	require.Equal(t, long, string(got))
}
