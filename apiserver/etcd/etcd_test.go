package etcd_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/apiserver/etcd"
)

func TestHoldsWhatWasWrittenAcrossARestart(t *testing.T) {
	o := options(t)

	first := start(t, o)
	_, err := first.Client().Put(t.Context(), "/a", "k8s:enc:\x00\xff")
	require.NoError(t, err)
	first.Close()

	second := start(t, o)
	t.Cleanup(second.Close)
	got, err := second.Get(t.Context(), "/a")
	require.NoError(t, err)
	require.Equal(t, "k8s:enc:\x00\xff", string(got))
}

func TestGetNamesAKeyThatIsNotThere(t *testing.T) {
	s := start(t, options(t))
	t.Cleanup(s.Close)

	_, err := s.Get(t.Context(), "/absent")
	require.ErrorIs(t, err, etcd.ErrNotFound)
	require.ErrorContains(t, err, "/absent")
}

func TestLogsIntoTheFile(t *testing.T) {
	o := options(t)
	o.LogFile = filepath.Join(t.TempDir(), "etcd.log")
	start(t, o).Close()

	log, err := os.ReadFile(o.LogFile)
	require.NoError(t, err)
	require.Contains(t, string(log), "ready to serve client requests")
}

func TestStartNamesAFolderItCannotUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	o := options(t)
	o.DataDir = filepath.Join(file, "etcd")

	_, err := etcd.Start(t.Context(), o)
	require.ErrorContains(t, err, file)
}

func start(t *testing.T, o etcd.Options) *etcd.Server {
	t.Helper()
	s, err := etcd.Start(t.Context(), o)
	require.NoError(t, err)
	return s
}

func options(t *testing.T) etcd.Options {
	t.Helper()
	sockets, err := os.MkdirTemp("", "etcd-") // t.TempDir is too long a name for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(sockets)) })
	return etcd.Options{DataDir: filepath.Join(t.TempDir(), "data"), SocketDir: sockets, Volatile: true}
}
