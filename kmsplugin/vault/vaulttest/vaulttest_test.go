package vaulttest_test

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
)

const rules = `
path "transit/keys/k" { capabilities = ["read"] }
path "transit/encrypt/k" { capabilities = ["update"] }
path "transit/decrypt/k" { capabilities = ["update"] }
`

var text = base64.StdEncoding.EncodeToString([]byte("a DEK"))

func TestAKeyWrapsAndUnwraps(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *vaulttest.Server{"https": vaulttest.Start, "http": vaulttest.StartHTTP} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.CreateKey("k", "")
			s.Policy("p", rules)
			token := s.Token(time.Hour, "p")
			wrapped := s.Do(http.MethodPost, "transit/encrypt/k", token, map[string]any{"plaintext": text})
			require.Equal(t, http.StatusOK, wrapped.Status, "%s", wrapped.Body)
			ciphertext := wrapped.JSON["data"].(map[string]any)["ciphertext"]
			require.Regexp(t, "^vault:v1:", ciphertext)

			s.Rotate("k")
			unwrapped := s.Do(http.MethodPost, "transit/decrypt/k", token, map[string]any{"ciphertext": ciphertext})
			require.Equal(t, text, unwrapped.JSON["data"].(map[string]any)["plaintext"], "%s", unwrapped.Body)
			s.Trim("k", 2)
			require.Equal(t, http.StatusBadRequest, s.Do(http.MethodPost, "transit/decrypt/k", token, map[string]any{"ciphertext": ciphertext}).Status)

			s.Revoke(token)
			require.Equal(t, http.StatusForbidden, s.Do(http.MethodPost, "transit/encrypt/k", token, map[string]any{"plaintext": text}).Status)
		})
	}
}

func TestWhatIsSealedComesBack(t *testing.T) {
	s := vaulttest.Start(t)
	s.CreateKey("k", "")
	s.Seal()
	require.Equal(t, http.StatusServiceUnavailable, s.Do(http.MethodGet, "transit/keys/k", s.RootToken, nil).Status)
	s.Unseal()
	s.Down()
	s.Up()
	require.NotEmpty(t, s.Read("transit/keys/k"))
}

// A field that the fake passed over would mean something to a real Vault.
func TestTheFakeTakesNoFieldThatItDoesNotKnow(t *testing.T) {
	s := vaulttest.Start(t)
	s.Faults()
	s.CreateKey("k", "")
	answer := s.Do(http.MethodPost, "transit/keys/k/config", s.RootToken, map[string]any{"auto_rotate_period": "1h"})
	require.Equal(t, http.StatusNotImplemented, answer.Status)
	require.Contains(t, string(answer.Body), "auto_rotate_period")
}
