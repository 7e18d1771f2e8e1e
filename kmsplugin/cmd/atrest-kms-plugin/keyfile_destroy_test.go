package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// runTyped runs the command for somebody who types.
func runTyped(t *testing.T, typed string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetIn(strings.NewReader(typed))
	err := root.ExecuteContext(t.Context())
	if err != nil {
		stderr.WriteString(err.Error())
	}
	return result{exitCode(err), stdout.String(), stderr.String()}
}

func TestDestroyAsksForTheIDASecondTime(t *testing.T) {
	path, infos := twoKeys(t)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, typed := range []string{"", "\n", "yes\n", infos[0].ID[:31] + "\n", infos[1].ID + "\n"} {
		got := runTyped(t, typed, "keyfile", "destroy", infos[0].ID, "--key-file", path)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "will be lost for ever")
		require.Contains(t, got.stderr, `"atrest retire" tells`)
		require.Contains(t, got.stderr, "nothing was destroyed")
		require.Empty(t, got.stdout)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	got := runTyped(t, infos[0].KeyID+"\n", "keyfile", "destroy", infos[0].KeyID, "--key-file", path)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Equal(t, infos[0].KeyID+"\n", got.stdout)
	left, err := keyfile.At(path).List()
	require.NoError(t, err)
	require.Equal(t, infos[1:], left)
}

// Nobody is made to confirm what cannot be done.
func TestDestroyAsksForNothingThatIsNotThere(t *testing.T) {
	path, infos := twoKeys(t)
	for given, problem := range map[string]string{"abc": "none of its 2 versions", infos[0].ID[:20]: "give all of it", infos[1].ID: "activate another one first"} {
		got := runTyped(t, given+"\n", "keyfile", "destroy", given, "--key-file", path)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, problem)
		require.NotContains(t, got.stderr, "Type it again")
	}
	got := runTyped(t, "abc\n", "keyfile", "destroy", "abc", "--key-file", path+".no")
	require.Equal(t, exitNoKeyFile, got.code)
	require.NotContains(t, got.stderr, "Type it again")
}

func TestWhatWrapsIsNotDestroyed(t *testing.T) {
	path, infos := twoKeys(t)
	got := runCommand(t, "keyfile", "destroy", infos[1].ID, "--yes", "--key-file", path)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "activate another one first")
	got = runCommand(t, "keyfile", "destroy", "--yes", "--key-file", path)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "required and not given: the KEY_ID")
}

// What was meant is no trouble of the plugin that serves from the file.
func TestARunningPluginGoesOnWithoutADestroyedVersion(t *testing.T) {
	path, infos := twoKeys(t)
	endpoint := plugintest.Endpoint(t)
	p := startServing(t, "--key-file", path, "--listen", endpoint)
	got := runCommand(t, "keyfile", "destroy", infos[0].ID, "--yes", "--key-file", path)
	require.Equal(t, exitDone, got.code, got.stderr)
	p.requireLogged(t, "a version is gone")
	require.NoError(t, p.end(os.Interrupt))
	require.Contains(t, p.log.String(), infos[0].KeyID)
	require.NotContains(t, p.log.String(), "nothing can be wrapped")
}
