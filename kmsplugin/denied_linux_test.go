package kmsplugin_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

func TestALockOfAnotherUserHasARemedy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	endpoint := plugintest.Endpoint(t)
	folder, lock := filepath.Dir(pathOf(endpoint)), pathOf(endpoint)+".lock"
	require.NoError(t, os.Chmod(folder, 0o711))
	err := listenAsNobody(endpoint)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "write there, or choose another path")
	require.ErrorContains(t, err, "made in folder "+folder)

	require.NoError(t, os.WriteFile(lock, nil, 0o600))
	require.NoError(t, os.Chown(lock, 65533, 65533))
	err = listenAsNobody(endpoint)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NotErrorIs(t, err, kmsplugin.ErrSocketInUse)
	require.ErrorContains(t, err, lock+" belongs to uid 65533")
	require.ErrorContains(t, err, "rm "+lock)
	require.FileExists(t, lock)
}

// listenAsNobody listens on a thread that the file system takes for another user's.
func listenAsNobody(endpoint string) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			done <- err
			return
		}
		_, err := kmsplugin.Listen(context.Background(), endpoint, well)
		done <- err
	}()
	return <-done
}
