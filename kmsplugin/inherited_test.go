package kmsplugin_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

func bound(t *testing.T, path string, mode os.FileMode) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	require.NoError(t, os.Chmod(path, mode))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestASocketThatIsBoundAlreadyIsServedAndStays(t *testing.T) {
	path := filepath.Join(plugintest.Folder(t), "kms.sock")
	listener := bound(t, path, 0o600)
	file, err := listener.File()
	require.NoError(t, err)
	defer file.Close()
	for range 2 { // one process after the other
		passed, err := net.FileListener(file)
		require.NoError(t, err)
		stop := plugintest.Serve(t, "unix://"+path, well, kmsplugin.WithListener(passed.(*net.UnixListener)))
		_, err = plugintest.Dial(t, "unix://"+path).Status(t.Context(), &kmsapi.StatusRequest{})
		require.NoError(t, err)
		stop()
		require.FileExists(t, path)
		require.NoFileExists(t, path+".lock")
	}
}

func TestABoundSocketHasToBeThatOfTheEndpointAndPrivate(t *testing.T) {
	folder := plugintest.Folder(t)
	_, err := kmsplugin.Listen(t.Context(), "unix://"+folder+"/other.sock", well, kmsplugin.WithListener(bound(t, folder+"/kms.sock", 0o600)))
	require.ErrorContains(t, err, "is at "+folder+"/kms.sock")
	_, err = kmsplugin.Listen(t.Context(), "unix://"+folder+"/open.sock", well, kmsplugin.WithListener(bound(t, folder+"/open.sock", 0o666)))
	require.ErrorContains(t, err, "SocketMode=0600")
}

func TestASocketOfAGroup(t *testing.T) {
	folder := plugintest.Folder(t)
	plugintest.Serve(t, "unix://"+folder+"/kms.sock", well, kmsplugin.WithGroup(os.Getegid()))
	info, err := os.Lstat(folder + "/kms.sock")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm())
	require.Equal(t, os.Getegid(), int(info.Sys().(*syscall.Stat_t).Gid))
}

// The test runs itself with a socket at descriptor 3, as systemd does.
func TestASocketThatIsPassedOn(t *testing.T) {
	if how := os.Getenv("ATREST_TEST_INHERITED"); how != "" {
		if how == "mine" {
			t.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
		}
		l, err := kmsplugin.Inherited()
		fmt.Printf("got %v, %v; %q\n", l != nil, err, os.Getenv("LISTEN_FDS"))
		if l != nil {
			server, err := kmsplugin.Listen(context.Background(), "unix://"+l.Addr().String(), well, kmsplugin.WithListener(l))
			fmt.Printf("served %v, %v\n", server != nil, err)
		}
		return
	}
	path := filepath.Join(plugintest.Folder(t), "kms.sock")
	file, err := bound(t, path, 0o600).File()
	require.NoError(t, err)
	defer file.Close()
	for how, want := range map[string][]string{
		"mine 1":      {`got true, <nil>; ""`, "served true, <nil>"},
		"mine 2":      {`got false, LISTEN_FDS is "2"`},
		"another's 1": {`got false, <nil>; ""`},
	} {
		whose, count, _ := strings.Cut(how, " ")
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestASocketThatIsPassedOn$")
		c.Env = append(os.Environ(), "ATREST_TEST_INHERITED="+whose, "LISTEN_PID=1", "LISTEN_FDS="+count)
		c.ExtraFiles = []*os.File{file}
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
		for _, line := range want {
			require.Contains(t, string(out), line, how)
		}
	}
}
