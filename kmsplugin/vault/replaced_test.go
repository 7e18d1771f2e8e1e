package vault_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
)

// keepSeldom is a keeper that has seen the key, and looks again only when it is asked to.
func keepSeldom(t *testing.T, p *place) (k *kmsplugin.Keeper, keyID string) {
	t.Helper()
	transit := p.transit(t)
	config := patient(transit.Config())
	config.Poll = time.Hour
	k = plugintest.Keep(t, transit, config)
	requireServes(t, k)
	keyID, err := k.Status(t.Context())
	require.NoError(t, err)
	return k, keyID
}

// requireNotUnder has nothing wrapped under a key_id whose key is gone, and the keeper find the
// new one by that.
func requireNotUnder(t *testing.T, k *kmsplugin.Keeper, keyID string) {
	t.Helper()
	_, err := k.Encrypt(t.Context(), "", dek)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, "it is thrown away")
	requireServes(t, k)
	after, err := k.Status(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, keyID, after)
}

func TestNothingIsWrappedUnderTheKeyIDOfADeletedKey(t *testing.T) {
	p := newPlace(t)
	k, keyID := keepSeldom(t, p)
	p.later(t)
	p.Delete("k")
	p.CreateKey("k", "")
	requireNotUnder(t, k, keyID)
}

func TestNothingIsWrappedUnderTheKeyIDOfAVersionThatABackupReplaced(t *testing.T) {
	p := newPlace(t)
	if !p.IsReal() {
		t.Skip("the fake has no backups")
	}
	p.Config("k", "exportable", true)
	p.Config("k", "allow_plaintext_backup", true)
	backup := p.Read("transit/backup/k")["backup"]
	p.Rotate("k")
	k, keyID := keepSeldom(t, p)
	p.later(t)
	p.Write("transit/restore/k", map[string]any{"backup": backup, "force": true})
	p.Rotate("k")
	requireNotUnder(t, k, keyID)
}

// A token that may create has Transit make the key, where there is none, to encrypt with it.
func TestNothingIsWrappedWithAKeyThatEncryptionItselfMade(t *testing.T) {
	p := newPlace(t)
	p.config.Auth.TokenFile = write(t, p.RootToken)
	k, keyID := keepSeldom(t, p)
	p.later(t)
	p.Delete("k")
	requireNotUnder(t, k, keyID)
}

func TestAVersionBelowMinDecryptionAloneWrapsNothing(t *testing.T) {
	p := newPlace(t)
	k, keyID := keepSeldom(t, p)
	p.Rotate("k")
	p.Config("k", "min_decryption_version", 2)
	_, err := k.Encrypt(t.Context(), "", dek)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.ErrorContains(t, err, "min_decryption_version")
	requireServes(t, k)
	after, err := k.Status(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, keyID, after)
}

func TestAStandbyThatLagsHasNothingWrappedUnderTheKeyIDOfADeletedKey(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	s := open(t, p.transit(t))
	old := writer(t, s)
	lag := faults.Behind("k")
	p.later(t)
	p.Delete("k")
	p.CreateKey("k", "")
	seen := writer(t, s)
	lag()
	ciphertext, _, err := s.Wrap(t.Context(), old, dek, []byte(old.KeyID()))
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, "a standby lags")
	require.Empty(t, ciphertext)
	faults.Clear()
	require.NoError(t, unwrap(t, s, seen, wrap(t, s, seen)))
}

// What a second read has shown counts as well as what a look has.
func TestOneCallThatSawTheNewKeyIsEnough(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	s := open(t, p.transit(t))
	old := writer(t, s)
	lag := faults.Behind("k")
	p.later(t)
	p.Delete("k")
	p.CreateKey("k", "")
	ciphertext, used, err := s.Wrap(t.Context(), old, dek, []byte(old.KeyID()))
	require.NoError(t, err)
	require.Empty(t, ciphertext)
	require.NotEqual(t, old.KeyID(), used.KeyID())
	lag()
	ciphertext, _, err = s.Wrap(t.Context(), old, dek, []byte(old.KeyID()))
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.Empty(t, ciphertext)
}

// A backup that is restored has the first version, and another second one than there was.
func TestAStandbyThatLagsHasNothingWrappedUnderTheKeyIDOfAVersionThatABackupReplaced(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	p.later(t)
	p.Rotate("k")
	s := open(t, p.transit(t))
	old := writer(t, s)
	faults.Rewrite("transit/keys/k", func(status int, body []byte) (int, []byte) {
		made := fmt.Appendf(nil, `"2":%d`, old.Created.Unix())
		assert.Contains(t, string(body), string(made))
		return status, bytes.Replace(body, made, fmt.Appendf(nil, `"2":%d`, old.Created.Unix()+60), 1)
	})
	seen := writer(t, s)
	require.Equal(t, old.Label, seen.Label)
	require.NotEqual(t, old.KeyID(), seen.KeyID())
	faults.Clear()
	ciphertext, _, err := s.Wrap(t.Context(), old, dek, []byte(old.KeyID()))
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.Empty(t, ciphertext)
}
