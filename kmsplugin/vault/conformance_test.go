package vault_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/conformance"
	"github.com/kube-atrest/atrest/kmsplugin/conformance/conformancetest"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// served is the plugin of a place, which can be restarted.
type served struct {
	*place
	endpoint string
	stop     func()
}

func serve(t *testing.T, p *place) *served {
	t.Helper()
	s := &served{place: p, endpoint: plugintest.Endpoint(t)}
	s.start(t)
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *served) start(t *testing.T) {
	t.Helper()
	transit := s.transit(t)
	config := patient(transit.Config())
	config.Poll, config.Concurrency = 50*time.Millisecond, 8
	keeper, err := kmsplugin.NewKeeper(transit, config)
	require.NoError(t, err)
	rest := keeper.Start(t.Context())
	stop := plugintest.Serve(t, s.endpoint, keeper)
	s.stop = func() { stop(); require.NoError(t, rest()) }
}

// longer than a keeper waits for a call.
const longer = 25 * time.Second

func TestConformance(t *testing.T) {
	p := newPlace(t)
	s := serve(t, p)
	conformancetest.Run(t, conformance.Target{
		Endpoint: s.endpoint,
		Rotate:   func(context.Context) error { p.Rotate("k"); return nil },
		Breaks:   conformance.LossOfKMS,
		Break:    func(context.Context) error { p.Seal(); return nil },
		Mend:     func(context.Context) error { p.Unseal(); return nil },
		Recreate: func(context.Context) error {
			p.later(t)
			p.Delete("k")
			p.CreateKey("k", "")
			return nil
		},
		Restart: func(context.Context) error { s.stop(); s.start(t); return nil },
	}, conformance.Options{Timeout: longer})
}

func TestConformanceInEachTrouble(t *testing.T) {
	policy := func(p *place, rules string) func(context.Context) error {
		return func(context.Context) error { p.Policy("plugin", rules); return nil }
	}
	for name, test := range map[string]struct {
		loss    conformance.Loss
		trouble func(p *place) (breaks, mends func(context.Context) error)
	}{
		"away": {conformance.LossOfKMS, func(p *place) (_, _ func(context.Context) error) {
			return func(context.Context) error { p.Down(); return nil }, func(context.Context) error { p.Up(); return nil }
		}},
		"a right is taken": {conformance.LossOfCredentials, func(p *place) (_, _ func(context.Context) error) {
			return policy(p, `path "auth/token/lookup-self" { capabilities = ["read"] }`), policy(p, `path "transit/*" { capabilities = ["read", "update"] }`)
		}},
		"the token is revoked": {conformance.LossOfCredentials, func(p *place) (_, _ func(context.Context) error) {
			return func(context.Context) error { p.Revoke(read(t, p.config.Auth.TokenFile)); return nil },
				func(context.Context) error {
					rewrite(t, p.config.Auth.TokenFile, p.Token(time.Hour, "plugin"))
					return nil
				}
		}},
		"the key is disabled": {conformance.LossOfKey, func(p *place) (_, _ func(context.Context) error) {
			p.Rotate("k")
			p.config.KeyVersion = "1"
			return func(context.Context) error { p.Config("k", "min_encryption_version", 2); return nil },
				func(context.Context) error { p.Config("k", "min_encryption_version", 0); return nil }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			breaks, mends := test.trouble(p)
			s := serve(t, p)
			conformancetest.Run(t, conformance.Target{Endpoint: s.endpoint, Break: breaks, Mend: mends, Breaks: test.loss}, conformance.Options{
				Timeout: longer, Only: []string{"trouble-shows", "trouble-is-an-error", "trouble-class", "deadline-kept", "trouble-ends"},
			})
		})
	}
}

// What every back end of this repository is held to.
func TestAsEveryBackEnd(t *testing.T) {
	p := newPlace(t)
	transit := p.transit(t)
	plugintest.Test(t, plugintest.Backend{
		Open: func(t testing.TB) kmsplugin.Service {
			return plugintest.Keep(t, transit, patient(kmsplugin.Config{Poll: 20 * time.Millisecond}))
		},
		Rotate: func(testing.TB) { p.Rotate("k") },
	})
}
