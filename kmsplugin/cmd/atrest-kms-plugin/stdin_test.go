package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ctrl-C ends the wait for somebody who types, and nothing is done then.
func TestTheWaitForWhoTypesCanBeInterrupted(t *testing.T) {
	path, infos := twoKeys(t)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	c := command(t, "keyfile", "destroy", infos[0].ID, "--key-file", path)
	_, err = c.StdinPipe() // nobody writes to it
	require.NoError(t, err)
	stderr, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	requireRead(t, stderr, "Type it again to destroy it: ")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	requireRead(t, stderr, "nothing was destroyed: interrupted")
	var exit *exec.ExitError
	require.ErrorAs(t, c.Wait(), &exit)
	require.Equal(t, exitFailed, exit.ExitCode())
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// requireRead reads until a text has come.
func requireRead(t *testing.T, from io.Reader, text string) {
	t.Helper()
	var read strings.Builder
	for !strings.Contains(read.String(), text) {
		var one [1]byte
		_, err := from.Read(one[:])
		require.NoError(t, err, read.String())
		read.Write(one[:])
	}
}
