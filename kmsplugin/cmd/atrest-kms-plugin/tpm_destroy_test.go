package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/tpm"
	"github.com/kube-atrest/atrest/kmsplugin/tpm/swtpmtest"
)

// twoSealedKeys is a file of sealed keys, of which the second wraps.
func twoSealedKeys(t *testing.T) (chip *swtpmtest.TPM, path string, infos []tpm.KeyInfo) {
	t.Helper()
	chip, path = swtpmtest.Start(t), filepath.Join(t.TempDir(), "tpm.json")
	for _, verb := range []string{"create", "rotate"} {
		got := tpmCommand(t, chip, path, verb)
		require.Equal(t, exitDone, got.code, got.stderr)
	}
	return chip, path, sealedKeys(t, path)
}

func sealedKeys(t *testing.T, path string) []tpm.KeyInfo {
	t.Helper()
	store, err := tpm.New(tpm.Config{File: path})
	require.NoError(t, err)
	infos, err := store.List()
	require.NoError(t, err)
	return infos
}

func TestDestroyOfASealedKeyAsksForTheIDASecondTime(t *testing.T) {
	_, path, infos := twoSealedKeys(t)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, typed := range []string{"", "\n", "yes\n", infos[0].ID[:31] + "\n", infos[1].ID + "\n"} {
		got := runTyped(t, typed, "tpm", "destroy", infos[0].ID, "--key-file", path)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "will be lost for ever")
		require.Contains(t, got.stderr, `"atrest retire" tells`)
		require.Contains(t, got.stderr, "nothing was destroyed")
		require.Empty(t, got.stdout)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	got := runTyped(t, infos[0].KeyID+"\n", "tpm", "destroy", infos[0].KeyID, "--key-file", path)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Equal(t, infos[0].KeyID+"\n", got.stdout)
	require.Equal(t, infos[1:], sealedKeys(t, path))
}

func TestDestroyAsksForNoSealedKeyThatIsNotThere(t *testing.T) {
	_, path, infos := twoSealedKeys(t)
	for given, problem := range map[string]string{"abc": "none of its 2 versions", infos[1].ID: "activate another one first"} {
		got := runTyped(t, given+"\n", "tpm", "destroy", given, "--key-file", path)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, problem)
		require.NotContains(t, got.stderr, "Type it again")
	}
}

func TestASealedKeyThatWrapsIsNotDestroyed(t *testing.T) {
	_, path, infos := twoSealedKeys(t)
	got := runCommand(t, "tpm", "destroy", infos[1].ID, "--yes", "--key-file", path)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "activate another one first")
	for _, args := range [][]string{{"--yes", "--key-file", path}, {infos[0].ID, "--yes"}, {infos[0].ID, infos[1].ID, "--key-file", path}} {
		got = runCommand(t, append([]string{"tpm", "destroy"}, args...)...)
		require.Equal(t, exitUsage, got.code, got.stderr)
	}
	require.Equal(t, infos, sealedKeys(t, path))
}

// What was meant is no trouble of the plugin that serves from the file.
func TestARunningPluginGoesOnWithoutADestroyedSealedKey(t *testing.T) {
	chip, path, infos := twoSealedKeys(t)
	endpoint := plugintest.Endpoint(t)
	p := startProcess(t, "tpm", "serve", "--tpm", chip.Device(), "--key-file", path, "--listen", endpoint)
	got := runCommand(t, "tpm", "destroy", infos[0].ID, "--yes", "--key-file", path)
	require.Equal(t, exitDone, got.code, got.stderr)
	p.requireLogged(t, "a version is gone")
	require.NoError(t, p.end(os.Interrupt))
	require.Contains(t, p.log.String(), infos[0].KeyID)
	require.False(t, strings.Contains(p.log.String(), "nothing can be wrapped"), p.log.String())
}
