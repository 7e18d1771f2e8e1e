package vault_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

// roleOf is an AppRole for the plugin, with a file that has this secret-id.
func (p *place) roleOf(t *testing.T, roleID, secretID string) (path string) {
	t.Helper()
	path = write(t, secretID)
	p.config.Auth = vault.Auth{AppRole: &vault.AppRole{RoleID: roleID, SecretIDFile: path}}
	return path
}

// requireLogins has so many logins be asked for until now, where that can be counted.
func (p *place) requireLogins(t *testing.T, n int) {
	t.Helper()
	if !p.IsReal() {
		require.Equal(t, n, p.Faults().Requests("auth/approle/login"))
	}
}

func TestAWrongLoginIsNotTriedAgainSoon(t *testing.T) {
	p := newPlace(t)
	clock := clocktesting.NewFakeClock(time.Now())
	p.config.Clock = clock
	roleID := p.AppRole(role)
	path := p.roleOf(t, roleID, "wrong")
	wrong := p.transit(t)
	tries := 0
	for _, step := range []struct {
		after time.Duration
		tried bool
	}{{0, true}, {19 * time.Minute, false}, {12 * time.Minute, true}, {39 * time.Minute, false}, {22 * time.Minute, true}, {79 * time.Minute, false}} {
		clock.Step(step.after)
		if step.tried {
			tries++
		}
		for range 10 {
			_, err := wrong.Open(t.Context())
			require.ErrorIs(t, err, kmsplugin.ErrDenied)
			require.ErrorContains(t, err, "write another secret-id to the file")
			require.ErrorContains(t, err, "wrong logins lock the role")
		}
		p.requireLogins(t, tries)
	}
	// Vault takes the role of another node, and another secret-id at once.
	p.roleOf(t, roleID, p.SecretID("plugin"))
	open(t, p.transit(t))
	rewrite(t, path, p.SecretID("plugin"))
	open(t, wrong)
}

func TestARoleThatIsLockedIsToldAndTriedAgain(t *testing.T) {
	p := newPlace(t)
	clock := clocktesting.NewFakeClock(time.Now())
	p.config.Clock = clock
	roleID := p.AppRole(role)
	p.roleOf(t, roleID, p.SecretID("plugin"))
	if p.IsReal() {
		for range 6 {
			p.Do(http.MethodPost, "auth/approle/login", "", map[string]any{"role_id": roleID, "secret_id": "wrong"})
		}
	} else {
		p.Faults().Answer("auth/approle/login", 403, `{"errors":["permission denied"]}`)
	}
	transit := p.transit(t)
	for range 10 {
		_, err := transit.Open(t.Context())
		require.ErrorIs(t, err, kmsplugin.ErrDenied)
		require.ErrorContains(t, err, "may have locked the role")
	}
	p.requireLogins(t, 1)
	clock.Step(2 * time.Minute)
	_, err := transit.Open(t.Context())
	require.Error(t, err)
	p.requireLogins(t, 2)
	if !p.IsReal() {
		p.Faults().Clear()
		clock.Step(2 * time.Minute)
		open(t, transit)
	}
}

func TestAFileOfTLSThatChangesNeedsNoOtherLogin(t *testing.T) {
	p := newPlace(t)
	roleID := p.AppRole(role)
	p.Write("auth/approle/role/plugin", map[string]any{"token_policies": []string{"plugin"}, "token_ttl": "1h", "secret_id_num_uses": 1})
	ca := write(t, read(t, p.CA))
	p.config.TLS.CAFile = ca
	p.config.Auth = vault.Auth{AppRole: &vault.AppRole{RoleID: roleID, Wrapped: true, SecretIDFile: write(t, p.WrappedSecretID("plugin", time.Hour))}}
	transit := p.transit(t)
	c := &counted{Backend: transit}
	config := patient(transit.Config())
	config.Poll = 20 * time.Millisecond
	k := plugintest.Keep(t, c, config)
	requireServes(t, k)
	for n := int32(2); n < 10; n++ {
		rewrite(t, ca, read(t, p.CA))
		require.Eventually(t, func() bool { return c.opened.Load() == n }, time.Minute, time.Millisecond)
	}
	require.NoError(t, k.Check(t.Context()))
	requireServes(t, k)
	p.requireLogins(t, 1)
	p.roleOf(t, roleID, p.SecretID("plugin"))
	open(t, p.transit(t))
}

func TestATokenOfTwoSessionsEndsWithTheLast(t *testing.T) {
	p := newPlace(t)
	_, renew, _ := logins["AppRole"](t, p)
	transit := p.transit(t)
	first, second := open(t, transit), open(t, transit)
	p.requireLogins(t, 1)
	require.NoError(t, first.Close(t.Context()))
	requireWorks(t, second)
	require.NoError(t, vault.RenewNow(t.Context(), second))
	require.NoError(t, second.Close(t.Context()))
	_, err := second.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrDenied, "Vault knows the token no more")

	third := open(t, transit)
	p.requireLogins(t, 2)
	renew()
	fourth := open(t, transit)
	p.requireLogins(t, 3)
	p.revokeAll()
	fifth := open(t, transit)
	p.requireLogins(t, 4)
	requireWorks(t, fifth)
	for _, s := range []kmsplugin.Session{third, fourth} {
		_, err := s.Versions(t.Context())
		require.ErrorIs(t, err, kmsplugin.ErrDenied)
	}
}
