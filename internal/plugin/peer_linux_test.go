package plugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

func TestAnAbstractSocketIsOfRootOrOfThisUser(t *testing.T) {
	require.NoError(t, admit(0, 1000))
	require.NoError(t, admit(1000, 1000))
	require.ErrorContains(t, admit(1001, 1000), "uid 1001 listens")
	require.ErrorContains(t, admit(1001, 0), "only root and uid 0")
	require.ErrorContains(t, admit(65534, 65534), "uid 65534 listens", "it may be anybody whom this namespace does not know")
}

// Whoever listens would answer, and is not asked.
func TestAnAbstractSocketOfAnotherUserIsNotDialled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can listen as somebody else")
	}
	name := fmt.Sprintf("@atrest-test-%d", os.Getpid())
	mine, others := name+"-mine", name+"-others"
	serve(t, mine)
	asked := make(chan struct{}, 1)
	serveOn(t, listenAs(t, 12345, others), func(context.Context) { signal(asked) })

	for socket, refused := range map[string]bool{mine: false, others: true} {
		conn, err := newLink(socket).dialOnce(t.Context())
		if refused {
			require.ErrorContains(t, err, "uid 12345 listens, and of an abstract socket only root and uid 0 are taken for the plugin: give it a path")
			continue
		}
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	c, err := Dial("unix:///"+others, never, nil)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, codes.Unavailable, call(t.Context(), c))
	require.Empty(t, asked)
}

// listenAs listens on a thread that the kernel takes for another user's.
func listenAs(t *testing.T, uid int, socket string) net.Listener {
	t.Helper()
	type listening struct {
		net.Listener
		err error
	}
	done := make(chan listening)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		if _, _, failed := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); failed != 0 {
			done <- listening{nil, failed}
			return
		}
		l, err := net.Listen("unix", socket)
		done <- listening{l, err}
	}()
	l := <-done
	require.NoError(t, l.err)
	return l.Listener
}
