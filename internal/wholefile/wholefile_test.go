package wholefile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAWrittenFileIsItsOwnersAlone(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "state.json")
	for _, content := range []string{"one", "two"} {
		require.NoError(t, Write(path, []byte(content)))
		requireFile(t, path, content, 0o600)
	}
	requireAlone(t, folder)
	require.ErrorIs(t, Write(filepath.Join(folder, "absent", "state.json"), nil), os.ErrNotExist)
}

func TestAnExchangedFileKeepsItsMode(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "encryption.yaml")
	require.ErrorIs(t, Exchange(path, []byte("new"), "do otherwise"), os.ErrNotExist)
	requireAlone(t, folder)
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o640))
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, Exchange(path, []byte("new"), "do otherwise"))
	requireFile(t, path, "new", 0o640)
	requireAlone(t, folder)
}

// A folder in its place stands for whatever cannot be renamed over.
func TestWhatCannotBeExchangedStays(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "mounted")
	require.NoError(t, os.Mkdir(path, 0o700))
	require.ErrorContains(t, Exchange(path, nil, "do otherwise"), "a file that is mounted by itself cannot be exchanged: do otherwise")
	requireAlone(t, folder)
	require.Error(t, Write(path, nil))
	requireAlone(t, folder)
}

func requireFile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, content, string(got))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode().Perm())
}

// requireAlone fails if anything was left beside the file.
func requireAlone(t *testing.T, folder string) {
	t.Helper()
	all, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.LessOrEqual(t, len(all), 1)
}

// A folder that takes no new file, as one that is mounted read-only.
func TestWhereNothingCanBeMadeTheOldFileStays(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write anywhere")
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.NoError(t, os.Chmod(folder, 0o500))
	t.Cleanup(func() { _ = os.Chmod(folder, 0o700) })
	require.ErrorContains(t, Exchange(path, []byte("new"), "do otherwise"), "a new file has to be made beside the old one: allow it, or do otherwise")
	require.Error(t, Write(path, []byte("new")))
	requireFile(t, path, "old", 0o600)
}

// No descriptor is left behind, however it ends.
func TestNothingStaysOpen(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/dev/fd")
		if err != nil {
			t.Skip("this system does not list what is open")
		}
		return len(all)
	}
	folder := t.TempDir()
	path := filepath.Join(folder, "encryption.yaml")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "mounted"), 0o700))
	before := open()
	for range 10 {
		require.NoError(t, Exchange(path, []byte("new"), ""))
		require.NoError(t, Write(path, []byte("new")))
		require.Error(t, Exchange(filepath.Join(folder, "mounted"), nil, ""))
	}
	require.Equal(t, before, open())
}
