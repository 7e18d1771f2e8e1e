package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

// requireChange runs a change, and gives the version whose key_id it printed, alone.
func requireChange(t *testing.T, path, says string, args ...string) keyfile.KeyInfo {
	t.Helper()
	got := runCommand(t, append(append([]string{"keyfile"}, args...), "--key-file", path)...)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, says)
	infos, err := keyfile.At(path).List()
	require.NoError(t, err)
	for _, info := range infos {
		if info.KeyID+"\n" == got.stdout {
			require.Contains(t, got.stderr, path+": version "+info.ID)
			return info
		}
	}
	require.Fail(t, "the key_id of no version", got.stdout)
	return keyfile.KeyInfo{}
}

func copyFile(t *testing.T, from string) (to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	require.NoError(t, err)
	to = filepath.Join(t.TempDir(), "copy.json")
	require.NoError(t, os.WriteFile(to, data, 0o600))
	return to
}

func TestARotationOfTwoNodes(t *testing.T) {
	one, two := filepath.Join(t.TempDir(), "kek.json"), filepath.Join(t.TempDir(), "kek.json")
	first := requireChange(t, one, "copy the file now", "create")
	require.Equal(t, first, requireChange(t, two, "remove the file", "import", copyFile(t, one)))

	staged := requireChange(t, one, "activate it on each", "stage")
	require.False(t, staged.Writes)
	require.Equal(t, first, requireChange(t, two, "wraps", "import", copyFile(t, one)))
	for _, node := range []string{one, two} {
		require.True(t, requireChange(t, node, "wraps from now on", "activate", staged.ID[:16]).Writes)
	}
	require.True(t, requireChange(t, one, "wraps from now on", "activate", first.KeyID).Writes)
	require.Equal(t, staged.ID, requireChange(t, one, "wraps from now on", "activate").ID)
}

func TestAForkIsMergedBothWays(t *testing.T) {
	one, _ := newKeyFile(t)
	two := copyFile(t, one)
	requireChange(t, one, "wraps from now on", "rotate")
	later := requireChange(t, two, "wraps from now on", "rotate")
	ofOne := copyFile(t, one)
	require.Equal(t, later, requireChange(t, one, "wraps", "merge", two))
	require.Equal(t, later, requireChange(t, two, "wraps", "merge", ofOne))
	infos, err := keyfile.At(two).List()
	require.NoError(t, err)
	require.Len(t, infos, 3)
}

func TestAFileInAFolderThatThereIsNotCannotBeMade(t *testing.T) {
	got := runCommand(t, "keyfile", "create", "--key-file", filepath.Join(t.TempDir(), "absent", "kek.json"))
	require.Equal(t, exitUsage, got.code, got.stderr)
	require.Contains(t, got.stderr, "its folder does not exist")
}

func TestWhatCannotBeChangedIsLeft(t *testing.T) {
	path, _ := newKeyFile(t)
	older := copyFile(t, path)
	requireChange(t, path, "wraps from now on", "rotate")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, test := range []struct {
		args    []string
		code    int
		problem string
	}{
		{[]string{"create"}, exitFailed, "it is not replaced"},
		{[]string{"import", older}, exitFailed, "merge it instead"},
		{[]string{"import", older + ".no"}, exitNoKeyFile, older + ".no"},
		{[]string{"merge", older + ".no"}, exitNoKeyFile, older + ".no"},
		{[]string{"import", path}, exitUsage, "is the key file itself"},
		{[]string{"merge", filepath.Dir(path) + "/./" + filepath.Base(path)}, exitUsage, "is the key file itself"},
		{[]string{"activate", "nobody"}, exitFailed, "none of its 2 versions"},
		{[]string{"activate", ""}, exitUsage, "required and not given"},
		{[]string{"activate", "a", "b"}, exitUsage, `unexpected argument "b"`},
		{[]string{"merge"}, exitUsage, "required and not given: the path"},
		{[]string{"import"}, exitUsage, "required and not given: the path"},
	} {
		got := runCommand(t, append(append([]string{"keyfile"}, test.args...), "--key-file", path)...)
		require.Equal(t, test.code, got.code, got.stderr)
		require.Contains(t, got.stderr, test.problem)
		require.Empty(t, got.stdout)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
}
