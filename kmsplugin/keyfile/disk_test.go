package keyfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFirstFileNeverReplacesOneThatHeedsNoLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kek.json")
	require.NoError(t, writeTemporary(osFiles{}, path, []byte("new")))
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))

	require.ErrorIs(t, publishNew(osFiles{}, path), fs.ErrExist)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "precious", string(data))
	require.NoFileExists(t, temporary(path))
}

func TestAnOversizedFileIsNotReadWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kek.json")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 1<<40)) // takes no space

	_, _, err := readFile(osFiles{}, path)
	require.ErrorIs(t, err, ErrDamaged)
	require.ErrorContains(t, err, "larger than 4194304 bytes")
}
