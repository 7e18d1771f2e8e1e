// Package plugintest serves a [kmsplugin.Service] on a real socket for as long
// as a test lasts, and calls it the way an apiserver does. It is for tests
// alone: everything that fails fails the test.
package plugintest

import (
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// Folder returns a new folder with mode 0700, removed when the test ends. Its
// name is short: a socket's has to fit into about 100 bytes, and t.TempDir
// contains the test's name.
func Folder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "kms")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	return folder
}

// Endpoint returns the endpoint of a socket in a folder of its own, where
// nothing listens yet.
func Endpoint(t testing.TB) string {
	t.Helper()
	return "unix://" + filepath.Join(Folder(t), "kms.sock")
}

// Serve serves on endpoint until stop is called or the test ends. Stop returns
// when the socket is gone, and may be called more than once; Serve may then be
// called again for the same endpoint, as a plugin that comes back.
func Serve(t testing.TB, endpoint string, service kmsplugin.Service, options ...kmsplugin.Option) (stop func()) {
	t.Helper()
	server, err := kmsplugin.Listen(t.Context(), endpoint, service, options...)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// Keep keeps a back end until the test ends.
func Keep(t testing.TB, backend kmsplugin.Backend, config kmsplugin.Config) *kmsplugin.Keeper {
	t.Helper()
	keeper, err := kmsplugin.NewKeeper(backend, config)
	require.NoError(t, err)
	stop := keeper.Start(t.Context())
	t.Cleanup(func() { assert.NoError(t, stop()) })
	return keeper
}

// Dial returns a client of the plugin at endpoint, closed when the test ends.
// It fails at once while nothing listens there.
func Dial(t testing.TB, endpoint string) kmsapi.KeyManagementServiceClient {
	t.Helper()
	parsed, err := url.Parse(endpoint)
	require.NoError(t, err)
	connection, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", parsed.Path)
		}),
	)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, connection.Close()) })
	return kmsapi.NewKeyManagementServiceClient(connection)
}
