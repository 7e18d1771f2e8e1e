//go:build unix

package rollout

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A hook is waited for no longer than it is wanted, whatever it left running.
func TestAHookThatHangsIsLeft(t *testing.T) {
	hook := filepath.Join(t.TempDir(), "hook")
	require.NoError(t, os.WriteFile(hook, []byte("#!/bin/sh\nsleep 300 &\necho $! >$0.pid\nwait\n"), 0o700))
	t.Cleanup(func() {
		pid, err := strconv.Atoi(strings.TrimSpace(read(t, hook+".pid")))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := HookedFiles{Program: hook, Err: io.Discard}.Read(ctx, "cp-1")
		ended <- err
	}()
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "hook read cp-1")
	case <-time.After(20 * time.Second):
		require.Fail(t, "it is waited for on and on")
	}
}
