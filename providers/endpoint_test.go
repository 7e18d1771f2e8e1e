package providers_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/faultplugin"
	"github.com/kube-atrest/atrest/providers"
)

// serveAt serves a plugin on a socket of any path or name.
func serveAt(t *testing.T, socket string) *faultplugin.Plugin {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	p, server := faultplugin.New(t), grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, p)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return p
}

// An endpoint is a URL, decoded once. Beside each socket stand those that are
// reached when it is decoded never, or twice: nothing may come there.
func TestAnEndpointMeansOneSocket(t *testing.T) {
	for written, meant := range map[string]string{
		"kms.sock":        "kms.sock",
		"a%3Fb.sock":      "a?b.sock",
		"a%23b.sock":      "a#b.sock",
		"a%25.sock":       "a%.sock",
		"a%2541b.sock":    "a%41b.sock",
		"a%252541b.sock":  "a%2541b.sock",
		"a%20b.sock":      "a b.sock",
		"a b.sock":        "a b.sock",
		"a+b.sock":        "a+b.sock",
		"a;b=c&d,e.sock":  "a;b=c&d,e.sock",
		"%40a.sock":       "@a.sock",
		"schlüssel.sock":  "schlüssel.sock",
		"a%C3%BCb.sock":   "aüb.sock",
		"a.sock?x=y":      "a.sock",
		"a.sock#fragment": "a.sock",
		"c:d.sock":        "c:d.sock",
	} {
		t.Run(written, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "e") // a socket's path must be short
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
			requireReached(t, "unix://"+dir+"/"+written, filepath.Join(dir, meant))
		})
	}
	t.Run("abstract", func(t *testing.T) {
		name := fmt.Sprintf("@atrest %% ? # %d", os.Getpid())
		requireReached(t, fmt.Sprintf("unix:///@atrest%%20%%25%%20%%3F%%20%%23%%20%d", os.Getpid()), name)
	})
}

func requireReached(t *testing.T, endpoint, socket string) {
	t.Helper()
	p := serveAt(t, socket)
	c, err := config.Parse(fmt.Appendf(nil, "%s", fileOf(rule("secrets", fmt.Sprintf("kms: {apiVersion: v2, name: a, endpoint: %q}", endpoint)))), config.Options{})
	require.NoError(t, err)
	x, err := providers.Build(c, providers.Options{})
	require.NoError(t, err)
	defer x.Close()
	x.Commit(func() {})
	require.NoError(t, x.Prepare(t.Context()))
	require.Equal(t, endpoint, x.Health()[0].Endpoint, "as the file has it")
	require.Equal(t, socket, c.Providers()[0].KMS().Address)
	require.NotZero(t, p.Calls().Encrypt)

	// The one form of it means the same again.
	again, err := config.Parse([]byte(fileOf(rule("secrets", fmt.Sprintf("kms: {apiVersion: v2, name: a, endpoint: %q}", c.Providers()[0].KMS().URL())))), config.Options{})
	require.NoError(t, err)
	require.Equal(t, socket, again.Providers()[0].KMS().Address)
	require.Equal(t, c.Providers()[0].KMS().URL(), again.Providers()[0].KMS().URL())
}
