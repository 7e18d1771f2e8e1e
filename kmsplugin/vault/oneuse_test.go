package vault_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

func TestASecretIDOfOneUseOutlastsALookThatFails(t *testing.T) {
	p := newPlace(t)
	roleID := p.AppRole(role)
	p.Write("auth/approle/role/"+role.Name, map[string]any{"token_policies": []string{"plugin"}, "token_ttl": "1h", "secret_id_num_uses": 1})
	p.config.Auth = vault.Auth{AppRole: &vault.AppRole{RoleID: roleID, SecretIDFile: write(t, p.SecretID(role.Name))}}
	policy, err := vault.Policy(p.config)
	require.NoError(t, err)
	p.Policy("plugin", `path "nothing" { capabilities = ["read"] }`)
	k := keep(t, p.transit(t))
	require.Eventually(t, func() bool {
		_, err := k.Status(t.Context())
		return err != nil && strings.Contains(err.Error(), "it is the policy")
	}, time.Minute, 10*time.Millisecond)
	p.Policy("plugin", policy) // as the error said
	require.Eventually(t, func() bool { _, err := k.Status(t.Context()); return err == nil }, time.Minute, 10*time.Millisecond)
}
