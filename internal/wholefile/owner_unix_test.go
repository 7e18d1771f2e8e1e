//go:build unix

package wholefile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnExchangedFileKeepsItsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to others")
	}
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chown(path, 4711, 4712))
	require.NoError(t, Exchange(path, []byte("new"), "do otherwise"))
	info, err := os.Stat(path)
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t)
	require.Equal(t, [2]uint32{4711, 4712}, [2]uint32{owner.Uid, owner.Gid})
}

func TestAFileWithAnotherNameIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.NoError(t, os.Link(path, filepath.Join(t.TempDir(), "other.yaml")))
	refused(t, path, "has another name (a hard link), which would keep the old content")
}
