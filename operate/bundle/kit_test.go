package bundle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wrapper is the head of all settings.
const wrapper = "apiVersion: " + APIVersion + "\nkind: " + SettingsKind + "\n"

const digest = "sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"

// The credentials of tests: no text may hold them.
const (
	roleID   = "7d3c1f0e-role-sesame"
	secretID = "51c0ffee-secret-sesame"
	pin      = "4711-pin-sesame"
)

// vaultSettings are with an AppRole and a CA.
const vaultSettings = wrapper + `vault:
  address: https://vault.example.com:8200
  keyPath: transit/keys/kube
  tls: {caBundle: vault-ca}
  auth:
    appRole: {secret: vault-approle}
`

func vaultParts() map[Part][]byte {
	return map[Part][]byte{
		{Secret, "vault-approle", "role-id"}:     []byte(roleID),
		{Secret, "vault-approle", "secret-id"}:   []byte(secretID),
		{ConfigMap, "vault-ca", "ca-bundle.crt"}: []byte("-----BEGIN CERTIFICATE-----"),
	}
}

func keyFileSettings(path string) string { return wrapper + "keyFile: {path: " + path + "}\n" }

// configFor is an EncryptionConfiguration with a provider for each keyID, the first one
// writing.
func configFor(ids ...KeyID) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n")
	for _, id := range ids {
		fmt.Fprintf(&b, "  - kms: {apiVersion: v2, name: \"%s\", endpoint: \"unix:///run/kmsplugin/%s\", timeout: 10s}\n", id, id.Socket())
	}
	b.WriteString("  - identity: {}\n")
	return []byte(b.String())
}

// draft has a Vault with keyID 7 and a key file with keyID 2.
func draft() Draft {
	return Draft{
		Revision:         3,
		EncryptionConfig: configFor(7, 2),
		Plugins: []DraftPlugin{
			{KeyID: 7, Settings: []byte(vaultSettings), Parts: vaultParts()},
			{KeyID: 2, Settings: []byte(keyFileSettings("/var/lib/atrest/kek.json"))},
		},
	}
}

func made(t testing.TB, d Draft) *Bundle {
	t.Helper()
	b, err := New(d)
	require.NoError(t, err)
	return b
}
