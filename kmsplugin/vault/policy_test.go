package vault_test

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

var rule = regexp.MustCompile(`(?s)path "[^"]*" \{.*?\}\n`)

// bare is a token that has this policy and not even the default one.
func (p *place) bare(t *testing.T, policy string) string {
	t.Helper()
	p.Policy("bare", policy)
	answer := p.Do(http.MethodPost, "auth/token/create", p.RootToken, map[string]any{"policies": []string{"bare"}, "no_default_policy": true, "ttl": "1h"})
	require.Equal(t, http.StatusOK, answer.Status, "%s", answer.Body)
	return answer.JSON["auth"].(map[string]any)["client_token"].(string)
}

// use does all that a plugin does with a token, and is the first error.
func use(t *testing.T, transit *vault.Transit) error {
	t.Helper()
	s, err := transit.Open(t.Context())
	if err != nil {
		return err
	}
	found, err := s.Versions(t.Context())
	if err != nil {
		return err
	}
	v := found.All[found.Writes]
	ciphertext, _, err := s.Wrap(t.Context(), v, dek, nil)
	if err != nil {
		return err
	}
	if _, err = s.Unwrap(t.Context(), v, ciphertext, nil); err != nil {
		return err
	}
	return vault.RenewNow(t.Context(), s)
}

func TestThePolicyIsExactlyEnough(t *testing.T) {
	p := newPlace(t)
	policy, err := vault.Policy(p.config)
	require.NoError(t, err)
	rewrite(t, p.config.Auth.TokenFile, p.bare(t, policy))
	require.NoError(t, use(t, p.transit(t)))

	rules := rule.FindAllString(policy, -1)
	require.Len(t, rules, 5)
	for _, one := range rules {
		p.Policy("bare", strings.Replace(policy, one, "", 1))
		err := use(t, p.transit(t))
		require.ErrorIs(t, err, kmsplugin.ErrDenied, "without %s", one)
	}
	p.Policy("bare", policy)
	require.NoError(t, use(t, p.transit(t)))
}

func TestThePolicyOfALoginLetsItEndItsToken(t *testing.T) {
	p := newPlace(t)
	logins["AppRole"](t, p)
	policy, err := vault.Policy(p.config)
	require.NoError(t, err)
	require.Contains(t, policy, "auth/token/revoke-self")
	p.Policy("plugin", policy)
	for _, enough := range []bool{true, false} {
		if !enough {
			p.Policy("plugin", strings.Replace(policy, "revoke-self", "none", 1))
		}
		p.Write("auth/approle/role/plugin", map[string]any{"token_no_default_policy": true, "token_policies": []string{"plugin"}})
		s, err := p.transit(t).Open(t.Context())
		require.NoError(t, err)
		err = s.Close(context.Background())
		require.Equal(t, enough, err == nil, "%v", err)
	}
}

func TestThePolicyIsWrittenWhereTheLoginIs(t *testing.T) {
	policy, err := vault.Policy(vault.Config{Namespace: "admin/team/a", AuthNamespace: "admin", Mount: "team/transit", Key: "k"})
	require.NoError(t, err)
	require.Contains(t, policy, `path "team/a/team/transit/encrypt/k"`)
	policy, err = vault.Policy(vault.Config{Namespace: "admin", AuthNamespace: "/", Mount: "transit", Key: "k"})
	require.NoError(t, err)
	require.Contains(t, policy, `path "admin/transit/encrypt/k"`)
	policy, err = vault.Policy(vault.Config{Namespace: "admin", Mount: "transit", Key: "k"})
	require.NoError(t, err)
	require.Contains(t, policy, `path "transit/encrypt/k"`)
	_, err = vault.Policy(vault.Config{Namespace: "team", AuthNamespace: "admin", Mount: "transit", Key: "k"})
	require.ErrorContains(t, err, "log in at the same one, or above")
	_, err = vault.Policy(vault.Config{Namespace: "administrators", AuthNamespace: "admin", Mount: "transit", Key: "k"})
	require.Error(t, err)
}
