//go:build cgo

package pkcs11

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/conformance"
	"github.com/kube-atrest/atrest/kmsplugin/conformance/conformancetest"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

func TestThePluginConforms(t *testing.T) {
	token, _ := tokenWithKey(t)
	endpoint := plugintest.Endpoint(t)
	serve := func() func() {
		keeper, err := kmsplugin.NewKeeper(token, quick(token))
		require.NoError(t, err)
		rest := keeper.Start(t.Context())
		stop := plugintest.Serve(t, endpoint, keeper)
		return func() { stop(); require.NoError(t, rest()) }
	}
	stop := serve()
	t.Cleanup(func() { stop() })
	var bringBack func()
	conformancetest.Run(t, conformance.Target{
		Endpoint: endpoint,
		Rotate:   func(context.Context) error { act(t, token.config, "rotate"); return nil },
		Restart:  func(context.Context) error { stop(); stop = serve(); return nil },
		Breaks:   conformance.LossOfKMS,
		Break:    func(context.Context) error { bringBack = takeAway(t); return nil },
		Mend:     func(context.Context) error { bringBack(); return nil },
		Recreate: func(context.Context) error {
			act(t, token.config, "delete", "")
			act(t, token.config, "create")
			return nil
		},
	}, conformance.Options{})
}

func TestTheBackEndKeepsThePromisesOfTheKit(t *testing.T) {
	token, _ := tokenWithKey(t)
	plugintest.Test(t, plugintest.Backend{
		Open:   func(t testing.TB) kmsplugin.Service { return keep(t, token) },
		Rotate: func(t testing.TB) { act(t, token.config, "rotate") },
	})
}
