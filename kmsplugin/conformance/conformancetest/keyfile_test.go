package conformancetest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/conformance"
	"github.com/kube-atrest/atrest/kmsplugin/conformance/conformancetest"
	"github.com/kube-atrest/atrest/kmsplugin/keyfile"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// A back end of the kit is held to the suite in some twenty lines.
func TestKeyFile(t *testing.T) {
	path, endpoint := filepath.Join(plugintest.Folder(t), "kek.json"), plugintest.Endpoint(t)
	file := keyfile.At(path)
	_, err := file.Create(t.Context())
	require.NoError(t, err)
	serve := func() func() {
		keeper, err := kmsplugin.NewKeeper(file, kmsplugin.Config{Poll: 50 * time.Millisecond, CallTimeout: 20 * time.Second})
		require.NoError(t, err)
		rest := keeper.Start(t.Context())
		stop := plugintest.Serve(t, endpoint, keeper)
		return func() { stop(); require.NoError(t, rest()) }
	}
	stop := serve()
	t.Cleanup(func() { stop() })
	conformancetest.Run(t, conformance.Target{
		Endpoint: endpoint,
		Rotate:   func(ctx context.Context) error { _, err := file.Rotate(ctx); return err },
		Restart:  func(context.Context) error { stop(); stop = serve(); return nil },
		Recreate: func(ctx context.Context) error {
			stop()
			require.NoError(t, os.Remove(path))
			_, err := file.Create(ctx)
			stop = serve()
			return err
		},
	}, conformance.Options{Timeout: 25 * time.Second}) // of a machine that is busy with other tests
}
