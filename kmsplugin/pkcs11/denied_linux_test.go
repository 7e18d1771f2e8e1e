//go:build cgo

package pkcs11

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

func TestAPINFileThatMayNotBeReadIsAMistakeWithARemedy(t *testing.T) {
	folder := plugintest.Folder(t)
	path := filepath.Join(folder, "pin")
	require.NoError(t, os.WriteFile(path, []byte("secret\n"), 0o600))
	require.NoError(t, os.Chmod(path, 0))
	require.NoError(t, os.Chmod(folder, 0o755))
	pin, err := asNobody(func() (string, error) { return readPIN(path) })
	require.ErrorIs(t, err, ErrMistake)
	require.ErrorIs(t, err, kmsplugin.ErrDenied)
	require.ErrorContains(t, err, "PIN file "+path+": permission denied: let the user read it that this runs as")
	require.Empty(t, pin)
}

func TestAPipeInThePlaceOfThePINFileIsAMistake(t *testing.T) {
	path := filepath.Join(plugintest.Folder(t), "pin")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := readPIN(path)
	require.ErrorIs(t, err, ErrMistake)
	require.ErrorContains(t, err, "no regular file")
}

// asNobody does something on a thread that the file system takes for another user's, who is not
// root in any case.
func asNobody(do func() (string, error)) (text string, err error) {
	if os.Geteuid() != 0 {
		return do()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		if _, err = unix.SetfsuidRetUid(65534); err == nil {
			text, err = do()
		}
	}()
	<-done
	return text, err
}
