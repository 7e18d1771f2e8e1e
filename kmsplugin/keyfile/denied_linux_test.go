package keyfile_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
)

func TestWhoMayNotWriteIsToldWhy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	file, _ := created(t)
	for _, folder := range []string{filepath.Dir(file.Path()), filepath.Dir(filepath.Dir(file.Path()))} {
		require.NoError(t, os.Chmod(folder, 0o711))
	}
	err := asNobody(file)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "let write to the folder "+filepath.Dir(file.Path()))

	require.NoError(t, os.WriteFile(file.Path()+".lock", nil, 0o600))
	require.NoError(t, os.Chown(file.Path()+".lock", 65533, 65533))
	err = asNobody(file)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "kek.json.lock belongs to uid 65533")
	require.ErrorContains(t, err, "rm "+file.Path()+".lock")
}

// asNobody rotates on a thread that the file system takes for another user's.
func asNobody(file *keyfile.File) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			done <- err
			return
		}
		_, err := file.Rotate(context.Background())
		done <- err
	}()
	return <-done
}
