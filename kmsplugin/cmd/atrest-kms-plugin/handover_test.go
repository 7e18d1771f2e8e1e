package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// throughShell has a shell do something and then become the command.
func throughShell(t *testing.T, c *exec.Cmd, before string) *exec.Cmd {
	t.Helper()
	through := exec.Command("sh", append([]string{"-c", before + ` && exec "$0" "$@"`}, c.Args...)...)
	through.Env = c.Env
	return through
}

// withSocket is a command to which a socket is passed on, as systemd does.
func withSocket(t *testing.T, socket *os.File, args ...string) *exec.Cmd {
	t.Helper()
	c := throughShell(t, command(t, args...), "export LISTEN_PID=$$ LISTEN_FDS=1")
	c.ExtraFiles = []*os.File{socket}
	return c
}

// boundSocket is one that whoever starts plugins keeps.
func boundSocket(t *testing.T, path string) *os.File {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	require.NoError(t, os.Chmod(path, 0o600))
	file, err := l.File()
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// callers call until they are told to stop, as an apiserver does: a call waits for a plugin.
type callers struct {
	client kmsapi.KeyManagementServiceClient
	stop   context.CancelFunc
	over   atomic.Bool
	all    sync.WaitGroup
	begun  atomic.Int64
	ended  atomic.Int64
	failed chan error
}

func startCallers(t *testing.T, endpoint string) *callers {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	c := &callers{client: plugintest.Dial(t, endpoint), stop: stop, failed: make(chan error, 8)}
	for range 8 {
		c.all.Go(func() {
			for !c.over.Load() {
				c.begun.Add(1)
				_, err := c.client.Encrypt(ctx, &kmsapi.EncryptRequest{Plaintext: []byte("dek")}, grpc.WaitForReady(true))
				if err != nil && !isStarting(err) {
					c.failed <- err
					return
				}
				c.ended.Add(1)
			}
		})
	}
	return c
}

// isStarting reports whether a call was told that the plugin starts: one that has not found its keys
// after a second serves, and says so.
func isStarting(err error) bool {
	return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "the plugin starts")
}

// requireMore waits until so many calls more have ended.
func (c *callers) requireMore(t *testing.T, n int64) {
	t.Helper()
	until := c.ended.Load() + n
	require.Eventually(t, func() bool { return c.ended.Load() >= until || len(c.failed) > 0 }, 5*time.Minute, time.Millisecond)
	require.Empty(t, c.failed)
}

func (c *callers) end(t *testing.T) {
	t.Helper()
	c.over.Store(true)
	c.all.Wait()
	c.stop()
	close(c.failed)
	for err := range c.failed {
		require.NoError(t, err)
	}
}

// While one process takes the place of another no call fails, and while there is none they wait.
func TestOneProcessTakesOverTheSocketOfAnother(t *testing.T) {
	folder := plugintest.Folder(t)
	path := filepath.Join(folder, "kms.sock")
	socket := boundSocket(t, path)
	serve := func() *process {
		return startCommand(t, withSocket(t, socket, "keyfile", "serve", "--create", "--key-file", folder+"/kek.json", "--listen", "unix://"+path)).requireWell(t)
	}
	first := serve()
	calling := startCallers(t, "unix://"+path)
	calling.requireMore(t, 100)

	second := serve()
	require.NoError(t, first.end(syscall.SIGTERM), "no call was cut off")
	calling.requireMore(t, 100)

	require.NoError(t, second.end(syscall.SIGTERM))
	require.Eventually(t, func() bool { return calling.begun.Load() == calling.ended.Load()+8 }, time.Minute, time.Millisecond)
	served := calling.ended.Load()
	require.FileExists(t, path, "it is that of who bound it")
	third := serve()
	calling.requireMore(t, 100)
	calling.end(t)
	require.Greater(t, calling.ended.Load(), served)
	require.NoError(t, third.end(syscall.SIGTERM))
}

func TestASocketThatIsPassedOnHasItsGroup(t *testing.T) {
	folder := plugintest.Folder(t)
	path := filepath.Join(folder, "kms.sock")
	c := withSocket(t, boundSocket(t, path), "keyfile", "serve", "--create", "--key-file", folder+"/kek.json", "--listen", "unix://"+path, "--group", "0")
	tooLong := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() }) // it serves
	defer tooLong.Stop()
	out, err := c.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, exitUsage, c.ProcessState.ExitCode(), string(out))
	require.Contains(t, string(out), "SocketGroup in the .socket unit")
	require.NoFileExists(t, folder+"/kek.json")
}
