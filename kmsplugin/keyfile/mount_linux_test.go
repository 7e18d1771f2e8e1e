package keyfile

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mount of the file itself goes on to show the file that a rotation has replaced.
func TestAFileMountedAsAFileIsATroubleOnceItWasRotated(t *testing.T) {
	path, mounted := filepath.Join(t.TempDir(), "kek.json"), filepath.Join(t.TempDir(), "kek.json")
	_, err := At(path).Create(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(mounted, nil, 0o600))
	if err := syscall.Mount(path, mounted, "", syscall.MS_BIND, ""); err != nil {
		t.Skip("only root may mount: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(mounted, syscall.MNT_DETACH)) })
	session, err := At(mounted).Open(t.Context())
	require.NoError(t, err)
	requireLooks(t, session, 1, "")
	_, err = At(mounted).Rotate(t.Context())
	require.ErrorContains(t, err, "mount its folder instead")
	requireLooks(t, session, 1, "")

	_, err = At(path).Rotate(t.Context())
	require.NoError(t, err)
	requireLooks(t, session, 1, "mount its folder instead")
}
