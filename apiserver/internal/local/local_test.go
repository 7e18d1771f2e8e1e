package local_test

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kube-atrest/atrest/apiserver/internal/local"
)

func TestWhatIsPreparedIsForItsOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	_, err := local.Prepare(dir, "127.0.0.1:6443")
	require.NoError(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		info, err := file.Info()
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode(), file.Name())
	}
}

func TestTheKubeconfigSaysWhatTheConfigSays(t *testing.T) {
	cluster, err := local.Prepare(t.TempDir(), "127.0.0.1:6443")
	require.NoError(t, err)
	fromFile, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	require.NoError(t, err)

	config := cluster.Config()
	require.Equal(t, "https://127.0.0.1:6443", fromFile.Host)
	require.Equal(t, config.Host, fromFile.Host)
	require.Equal(t, config.BearerToken, fromFile.BearerToken)
	require.Equal(t, config.CAData, fromFile.CAData)
}

func TestEveryRunHasCredentialsOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	first, err := local.Prepare(dir, "127.0.0.1:6443")
	require.NoError(t, err)
	second, err := local.Prepare(dir, "127.0.0.1:6443")
	require.NoError(t, err)
	require.NotEqual(t, first.Config().BearerToken, second.Config().BearerToken)
}

func TestAFolderThatCannotBeWrittenIsNamed(t *testing.T) {
	_, err := local.Prepare(filepath.Join(t.TempDir(), "absent"), "127.0.0.1:6443")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "absent")
}

func TestWaitForReturnsOnceThePathIsOK(t *testing.T) {
	var asked atomic.Int32
	probe := newProbe(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/readyz", r.URL.Path)
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	require.NoError(t, probe.WaitFor(t.Context(), "/readyz"))
	require.EqualValues(t, 3, asked.Load())
}

func TestWaitForTellsTheLastAnswer(t *testing.T) {
	reason := errors.New("the reason to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	probe := newProbe(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not yet", http.StatusInternalServerError)
	})
	status, text, err := probe.Get(ctx, "/readyz")
	require.NoError(t, err)
	require.Equal(t, http.StatusInternalServerError, status)
	require.Equal(t, "not yet", text)

	var answers atomic.Int32
	probe = newProbe(t, func(w http.ResponseWriter, r *http.Request) {
		if answers.Add(1) == 3 {
			cancel(reason)
		}
		http.Error(w, "not yet", http.StatusInternalServerError)
	})
	err = probe.WaitFor(ctx, "/readyz")
	require.ErrorIs(t, err, reason)
	require.ErrorContains(t, err, "/readyz is not ok")
	require.ErrorContains(t, err, "last answer: 500 not yet")
}

func TestAPluginGoesAndComesBack(t *testing.T) {
	sockets, err := os.MkdirTemp("", "local-") // t.TempDir is too long a name for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(sockets)) })
	socket := filepath.Join(sockets, "kms.sock")
	plugin, err := local.NewPlugin(t.Context(), filepath.Join(t.TempDir(), "keys"), socket)
	require.NoError(t, err)
	require.Equal(t, "unix://"+socket, plugin.Endpoint())

	for range 2 {
		require.NoError(t, plugin.Start(t.Context()))
		require.FileExists(t, socket)
		require.ErrorContains(t, plugin.Start(t.Context()), "serves already")
		require.NoError(t, plugin.Stop())
		require.NoFileExists(t, socket)
		require.NoError(t, plugin.Stop())
	}
}

func newProbe(t *testing.T, answer http.HandlerFunc) *local.Probe {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	probe, err := local.NewProbe(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	return probe
}
