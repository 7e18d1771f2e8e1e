package keptfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

func TestAFirstFileNeverReplacesOneThatHeedsNoLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kek.json")
	require.NoError(t, writeTemporary(system{}, path, []byte("new")))
	require.NoError(t, os.WriteFile(path, []byte("precious"), 0o600))

	require.ErrorIs(t, publishNew(system{}, path), fs.ErrExist)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "precious", string(data))
	require.NoFileExists(t, Temporary(path))
}

func TestAnOversizedFileIsNotReadWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kek.json")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, 1<<40)) // takes no space

	_, _, err := readFile(system{}, path)
	require.ErrorIs(t, err, ErrDamaged)
	require.ErrorContains(t, err, "larger than 4194304 bytes")
}

func TestWhatCouldNotBeReadIsNotWritten(t *testing.T) {
	file := At(filepath.Join(t.TempDir(), "kek.json"), clock.RealClock{})
	largest := make([]byte, MaxSize, MaxSize+1)
	require.NoError(t, file.Make(t.Context(), func() ([]byte, error) { return largest, nil }))
	err := file.Change(t.Context(), func() ([]byte, error) { return largest[:MaxSize+1], nil })
	require.ErrorContains(t, err, "larger than 4194304 bytes")
	data, _, err := file.Read()
	require.NoError(t, err)
	require.Len(t, data, MaxSize)
}

func TestTheWholeDiskCanBeMadeDurable(t *testing.T) {
	require.NoError(t, system{}.SyncAll(t.TempDir()))
}
