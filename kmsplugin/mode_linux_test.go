package kmsplugin

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASocketFileIsNeverOpenToOthersNotEvenAtBirth(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	folder, err := os.MkdirTemp("", "kms")
	require.NoError(t, err)
	defer os.RemoveAll(folder)

	listener, err := listen(t.Context(), filepath.Join(folder, "kms.sock"))
	require.NoError(t, err)
	defer listener.Close()
	info, err := os.Lstat(filepath.Join(folder, "kms.sock"))
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o600, info.Mode(), "before any chmod")
}
