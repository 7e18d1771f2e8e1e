package kmsplugin_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

func TestAbstractSockets(t *testing.T) {
	endpoint := "unix:///@atrest-" + uuid.NewString()
	stop := plugintest.Serve(t, endpoint, well)
	requireServes(t, endpoint)
	require.NoFileExists(t, "@"+endpoint[len("unix:///@"):])

	_, err := kmsplugin.Listen(t.Context(), endpoint, well)
	require.ErrorIs(t, err, kmsplugin.ErrSocketInUse)
	require.ErrorContains(t, err, "choose another name")

	stop()
	plugintest.Serve(t, endpoint, well)
	requireServes(t, endpoint)
}

func TestAnotherUserMayNotUseAnAbstractSocket(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	name := "@atrest-" + uuid.NewString()
	plugintest.Serve(t, "unix:///"+name, well)

	readFrame := func(conn net.Conn) error {
		_, err := io.ReadFull(conn, make([]byte, 9)) // the head of an HTTP/2 frame
		return err
	}
	require.NoError(t, readAs(0, name, readFrame))
	require.Error(t, readAs(65534, name, readFrame))
}

// readAs connects as the user uid, greets in HTTP/2 and hands the connection to
// read. Only the thread that connects becomes that user, and it ends with the
// goroutine, which never unlocks it.
func readAs(uid uintptr, name string, read func(net.Conn) error) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		ended <- func() error {
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid); errno != 0 {
				return fmt.Errorf("setresuid: %w", errno)
			}
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			file := os.NewFile(uintptr(fd), "socket")
			defer file.Close()
			if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: name}); err != nil {
				return err
			}
			conn, err := net.FileConn(file)
			if err != nil {
				return err
			}
			defer conn.Close()
			// PRI preface and an empty SETTINGS frame (RFC 9113, section 3.4);
			// a refused peer may find the connection closed already.
			_, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
			return read(conn)
		}()
	}()
	return <-ended
}
