package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/operate/bundle"
)

const (
	vaultAt     = "vault: {address: %q, keyPath: transit/keys/kube-%d, auth: {appRole: {secret: login}}}\n"
	otherVault  = "https://other.example.com:8200"
	vaultServer = "https://vault.example.com:8200"
)

// A login is a plugin that logs in at a Vault with a secret-id.
type login struct {
	keyID    int
	settings string
	secretID string
}

func at(keyID int, address, secretID string) login {
	return login{keyID, fmt.Sprintf(vaultAt, address, keyID), secretID}
}

func ofVaults(t *testing.T, revision uint64, all ...login) *bundle.Bundle {
	t.Helper()
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n"
	d := bundle.Draft{Revision: revision}
	for _, l := range all {
		config += fmt.Sprintf("  - kms: {apiVersion: v2, name: \"%d_secrets\", endpoint: \"unix:///run/kms/kms-%d.sock\"}\n", l.keyID, l.keyID)
		d.Plugins = append(d.Plugins, bundle.DraftPlugin{KeyID: bundle.KeyID(l.keyID),
			Settings: []byte("apiVersion: " + bundle.APIVersion + "\nkind: " + bundle.SettingsKind + "\n" + l.settings),
			Parts: map[bundle.Part][]byte{
				{Source: bundle.Secret, Name: "login", Key: "role-id"}:   []byte("role"),
				{Source: bundle.Secret, Name: "login", Key: "secret-id"}: []byte(l.secretID),
			}})
	}
	d.EncryptionConfig = []byte(config + "  - identity: {}\n")
	b, err := bundle.New(d)
	require.NoError(t, err)
	return b
}

// given is the secret-id that a keyID is given.
func given(t *testing.T, all bundles, keyID string) string {
	t.Helper()
	for _, b := range all {
		if p := pluginOf(b, keyID); p != nil {
			part := bundle.Part{Source: bundle.Secret, Name: "login", Key: "secret-id"}
			return string(all.files(p)[part.FileName(p.KeyID())])
		}
	}
	t.Fatalf("no bundle has keyID %s", keyID)
	return ""
}

// The former secret-id may be revoked once there is another, and a keyID that is about to go has to
// decrypt until it has gone.
func TestANewCredentialIsForEveryKeyIDOfTheSameProvider(t *testing.T) {
	former := ofVaults(t, 1, at(1, vaultServer, "former"), at(2, vaultServer, "former"), at(3, otherVault, "theirs"))
	require.Equal(t, "former", given(t, bundles{former}, "1"))

	t.Run("where the new bundle has it for the newest keyID alone", func(t *testing.T) {
		all := bundles{ofVaults(t, 2, at(1, vaultServer, "former"), at(2, vaultServer, "newer"), at(3, otherVault, "theirs")), former}
		require.Equal(t, "newer", given(t, all, "1"))
		require.Equal(t, "newer", given(t, all, "2"))
	})
	t.Run("where the new bundle has one of them no more", func(t *testing.T) {
		all := bundles{ofVaults(t, 2, at(2, vaultServer, "newer")), former}
		require.Equal(t, "newer", given(t, all, "1"))
		w := all.wanted(former, nil, nil)
		require.NotEqual(t, bundles{former}.wanted(former, nil, nil).Keys["1"].Files, w.Keys["1"].Files, "which is what has it put in place")
		require.Equal(t, bundles{former}.wanted(former, nil, nil).Keys["1"].Settings, w.Keys["1"].Settings, "without another process")
	})
	t.Run("where it comes with a keyID that is new", func(t *testing.T) {
		all := bundles{ofVaults(t, 2, at(1, vaultServer, "former"), at(4, vaultServer, "newest")), former}
		for _, keyID := range []string{"1", "2", "4"} {
			require.Equal(t, "newest", given(t, all, keyID))
		}
	})
	t.Run("but not for another provider", func(t *testing.T) {
		another := map[string]string{
			"namespace": strings.Replace(fmt.Sprintf(vaultAt, vaultServer, 3), "keyPath", "namespace: team, keyPath", 1),
			"mount":     strings.Replace(fmt.Sprintf(vaultAt, vaultServer, 3), "{appRole", "{mount: other, appRole", 1),
			"address":   fmt.Sprintf(vaultAt, otherVault, 3),
		}
		for what, settings := range another {
			before := ofVaults(t, 1, at(1, vaultServer, "former"), login{3, settings, "theirs"})
			all := bundles{ofVaults(t, 2, at(1, vaultServer, "former"), at(2, vaultServer, "newer"), login{3, settings, "theirs"}), before}
			require.Equal(t, "theirs", given(t, all, "3"), what)
			require.Equal(t, "newer", given(t, all, "1"), what)
		}
	})
	t.Run("whatever the address ends with", func(t *testing.T) {
		all := bundles{ofVaults(t, 2, at(1, vaultServer+"/", "former"), at(2, vaultServer, "newer")), former}
		require.Equal(t, "newer", given(t, all, "1"))
	})
}

// A wrapping token gives the secret-id to whoever comes first.
func TestALoginThatCanBeUsedOnceIsNotTried(t *testing.T) {
	once := strings.Replace(vaultAt, "secret: login", "secret: login, wrapped: true", 1)
	_, err := Try(t.Context(), ofVaults(t, 1, login{1, fmt.Sprintf(once, vaultServer, 1), "wrapping-token"}), Options{Run: t.TempDir()})
	require.ErrorContains(t, err, "it would be used up")
}
