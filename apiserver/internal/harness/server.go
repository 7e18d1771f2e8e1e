package harness

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	// rarely has a server collect garbage less often than it would: a quarter of its work is
	// that, and memory is not what tests are short of.
	rarely = "GOGC=400"
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

// SocketDir returns a private folder whose name is short enough for sockets, which
// t.TempDir's is not.
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
	Etcd interface{ Endpoint() string }
	// Flags stand behind those that every local server needs, and behind them what Now,
	// if set, gives at each start.
	Flags []string
	Now   func() []string
	// Cluster, if set, is what [Prepare] made: then others may know of the server before it
	// is started.
	Cluster *local.Cluster
	// Host, if set, is what the server's host is called. Its identity, in its Lease and
	// its metrics, is made of that: servers of one cluster need one each.
	Host string
}

// Server is a kube-apiserver in a process of its own, and clients for its administrator.
type Server struct {
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	Config  *rest.Config

	*Process
	probe *local.Probe
}

// Start runs a server and returns once it is ready.
func Start(t *testing.T, spec Spec) *Server {
	t.Helper()
	s := Launch(t, spec)
	s.WaitFor("/readyz")
	return s
}

// Prepare gives a server that is to be started an address and its credentials.
func Prepare(t *testing.T) *local.Cluster {
	t.Helper()
	cluster, err := local.Prepare(t.TempDir(), FreeAddress(t))
	require.NoError(t, err)
	return cluster
}

// Launch runs a server and returns without waiting for it. It is stopped when the test
// ends.
func Launch(t *testing.T, spec Spec) *Server {
	t.Helper()
	cluster := spec.Cluster
	if cluster == nil {
		cluster = Prepare(t)
	}
	flags, err := cluster.Flags(spec.Etcd.Endpoint())
	require.NoError(t, err)

	s := clients(t, cluster.Config())
	s.Process = run(t, spec.Program, func(ctx context.Context) (*exec.Cmd, error) {
		all := slices.Concat(flags, spec.Flags)
		if spec.Now != nil {
			all = append(all, spec.Now()...)
		}
		command, err := Command(ctx, spec.Program, all...)
		if err != nil {
			return nil, err
		}
		command.Env = append(command.Env, rarely)
		if spec.Host != "" {
			onHost(command, spec.Host)
		}
		return command, nil
	})
	return s
}

// LaunchFile runs the apiserver that is in a file, which is asked as config says, and
// returns without waiting for it.
func LaunchFile(t *testing.T, path string, config *rest.Config, flags []string) *Server {
	t.Helper()
	s := clients(t, config)
	s.Process = RunFile(t, path, flags...)
	return s
}

func clients(t *testing.T, config *rest.Config) *Server {
	t.Helper()
	s, err := &Server{Config: config}, error(nil)
	s.Kube, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	s.Dynamic, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	s.probe, err = local.NewProbe(config)
	require.NoError(t, err)
	return s
}

// WaitFor returns once path answers 200. The test fails when the process ends before
// that.
func (s *Server) WaitFor(path string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeoutCause(s.t.Context(), patience, errors.New("the test's patience is over"))
	defer cancel()
	exited := s.exited
	go func() {
		select {
		case <-exited:
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

// Try is Get for a server that may be away: an error means no answer.
func (s *Server) Try(path string) (status int, text string, err error) {
	return s.probe.Get(s.t.Context(), path)
}

// FreeAddress returns an address that was free a moment ago: kube-apiserver does not take
// port 0.
func FreeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
