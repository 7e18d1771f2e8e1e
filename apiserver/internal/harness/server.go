package harness

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kube-atrest/atrest/apiserver/etcd"
	"github.com/kube-atrest/atrest/apiserver/internal/local"
)

const (
	// patience bounds each wait for a server. It is many times what a slow machine needs.
	patience = 2 * time.Minute
	// shownLines is how much of a server's log a failed test shows.
	shownLines = 40
)

// Etcd runs a member until the test ends.
func Etcd(t *testing.T) *etcd.Server {
	t.Helper()
	s, err := etcd.Start(t.Context(), etcd.Options{
		DataDir:   filepath.Join(t.TempDir(), "etcd"),
		SocketDir: SocketDir(t),
		Volatile:  true,
	})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// SocketDir returns a private folder whose name is short enough for sockets, which t.TempDir's is not.
func SocketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "atrest-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// Spec says which server to start.
type Spec struct {
	// Program is the name given to [Main].
	Program string
	// Etcd is where the server keeps its objects.
	Etcd *etcd.Server
	// Flags stand behind those that every local server needs.
	Flags []string
}

// Server is a kube-apiserver in a process of its own, and clients for its administrator.
type Server struct {
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	Config  *rest.Config

	t       *testing.T
	probe   *local.Probe
	command *exec.Cmd
	log     string
	exited  chan struct{}
	exit    error // read only once exited is closed
}

// Start runs a server and returns once it is ready.
func Start(t *testing.T, spec Spec) *Server {
	t.Helper()
	s := Launch(t, spec)
	s.WaitFor("/readyz")
	return s
}

// Launch runs a server and returns without waiting for it. It is stopped when the test ends.
func Launch(t *testing.T, spec Spec) *Server {
	t.Helper()
	dir := t.TempDir()
	cluster, err := local.Prepare(dir, freeAddress(t))
	require.NoError(t, err)
	flags, err := cluster.Flags(spec.Etcd.Endpoint())
	require.NoError(t, err)

	s := &Server{t: t, Config: cluster.Config(), log: filepath.Join(dir, "server.log"), exited: make(chan struct{})}
	s.Kube, err = kubernetes.NewForConfig(s.Config)
	require.NoError(t, err)
	s.Dynamic, err = dynamic.NewForConfig(s.Config)
	require.NoError(t, err)
	s.probe, err = local.NewProbe(s.Config)
	require.NoError(t, err)
	s.launch(spec.Program, append(flags, spec.Flags...))
	return s
}

func (s *Server) launch(program string, args []string) {
	log, err := os.Create(s.log)
	require.NoError(s.t, err)
	// The test's own context is over before clean-up begins, and a server deserves its orderly end.
	s.command, err = Command(context.WithoutCancel(s.t.Context()), program, args...)
	require.NoError(s.t, err)
	s.command.Stdout, s.command.Stderr = log, log
	require.NoError(s.t, s.command.Start())
	require.NoError(s.t, log.Close())
	go func() {
		defer close(s.exited)
		s.exit = s.command.Wait()
	}()
	s.t.Cleanup(func() {
		s.Stop()
		if s.t.Failed() {
			s.t.Logf("errors in the log of %s:\n%s", program, s.failures())
		}
	})
}

// WaitFor returns once path answers 200. The test fails when the process ends before that.
func (s *Server) WaitFor(path string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeoutCause(s.t.Context(), patience, errors.New("the test's patience is over"))
	defer cancel()
	go func() {
		select {
		case <-s.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	require.NoError(s.t, s.probe.WaitFor(ctx, path))
}

// Get returns what path answers with.
func (s *Server) Get(path string) (status int, text string) {
	s.t.Helper()
	status, text, err := s.probe.Get(s.t.Context(), path)
	require.NoError(s.t, err)
	return status, text
}

// Exit waits until the process has ended by itself and returns its exit code.
func (s *Server) Exit() int {
	s.t.Helper()
	s.wait()
	return s.command.ProcessState.ExitCode()
}

// Stop ends the process as an operator would, and waits until it is gone. Stopping twice is harmless.
func (s *Server) Stop() {
	s.t.Helper()
	select {
	case <-s.exited:
		return
	default:
	}
	// It may have ended in the meantime, which is as good.
	if err := s.command.Process.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(s.t, err)
	}
	s.wait()
}

// Log returns everything the process has written so far.
func (s *Server) Log() string {
	s.t.Helper()
	log, err := os.ReadFile(s.log)
	require.NoError(s.t, err)
	return string(log)
}

func (s *Server) wait() {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(patience):
		// Killed by its id, so that it does not outlive the test that failed here.
		_ = s.command.Process.Kill()
		<-s.exited
		require.FailNow(s.t, "the server did not end by itself", s.failures())
	}
}

// failures are the end of what the server logged, without what klog marks as information or warning.
func (s *Server) failures() string {
	var kept []string
	for line := range strings.Lines(s.Log()) {
		if !informal.MatchString(line) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-shownLines):], "")
}

var informal = regexp.MustCompile(`^[IW][0-9]{4} `)

// freeAddress returns an address that was free a moment ago: kube-apiserver does not take port 0.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
