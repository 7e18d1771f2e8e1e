package vault_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/vault"
)

func TestAVaultThatMovesHasTheSameKeyIDs(t *testing.T) {
	p := newPlace(t)
	before := writer(t, open(t, p.transit(t)))
	p.config.Address = strings.Replace(p.config.Address, "127.0.0.1", "localhost", 1)
	p.config.TLS.ServerName = "vault.test"
	p.config.Mount = "/transit/" // another spelling
	require.Equal(t, before.KeyID(), writer(t, open(t, p.transit(t))).KeyID())
}

func TestAnotherKeyOfTheSameNameHasAnotherKeyID(t *testing.T) {
	p := newPlace(t)
	s := open(t, p.transit(t))
	before := writer(t, s)
	ciphertext := wrap(t, s, before)
	p.later(t)
	p.Delete("k")
	_, err := s.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnknownKey)
	require.ErrorContains(t, err, "deleted, or never made")
	require.ErrorIs(t, unwrap(t, s, before, ciphertext), kmsplugin.ErrUnknownKey)

	p.CreateKey("k", "")
	after := writer(t, s)
	require.Equal(t, before.Label, after.Label)
	require.NotEqual(t, before.KeyID(), after.KeyID())
	err = unwrap(t, s, before, ciphertext)
	require.ErrorIs(t, err, kmsplugin.ErrUnknownKey, "what the former key wrapped is not damaged")
	require.ErrorContains(t, err, "deleted and made again")
	requireWorks(t, s)
}

// A node that lags has the former key still, and cannot open what the new one wrapped.
func TestWhatANodeThatLagsCannotOpenIsNotSaidToBeDamaged(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	s := open(t, p.transit(t))
	var former []byte
	faults.Rewrite("transit/keys/k", func(status int, body []byte) (int, []byte) { former = body; return status, body })
	writer(t, s)
	faults.Clear()
	lag := faults.Behind("k")
	p.later(t)
	p.Delete("k")
	p.CreateKey("k", "")
	v := writer(t, s)
	ciphertext := wrap(t, s, v)
	lag()
	faults.Answer("transit/decrypt/k", 400, `{"errors":["cipher: message authentication failed"]}`)
	err := unwrap(t, s, v, ciphertext)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.NotErrorIs(t, err, kmsplugin.ErrInvalid)
	require.ErrorContains(t, err, "a standby lags")
	asked := faults.Requests("transit/keys/k")
	faults.Rewrite("transit/keys/k", func(status int, body []byte) (int, []byte) {
		if faults.Requests("transit/keys/k") > asked+1 {
			return status, body // of another node
		}
		return status, former
	})
	err = unwrap(t, s, v, ciphertext)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, "a node lags")
	faults.Clear()
	faults.Answer("transit/decrypt/k", 400, `{"errors":["cipher: message authentication failed"]}`)
	require.ErrorIs(t, unwrap(t, s, v, ciphertext), kmsplugin.ErrInvalid)
}

func TestAKeyThatOneNodeDoesNotFindIsNotGoneWhileAnotherTellsOfIt(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	s := open(t, p.transit(t))
	v := writer(t, s)
	ciphertext := wrap(t, s, v)
	faults.Answer("transit/decrypt/k", 400, `{"errors":["encryption key not found"]}`)
	err := unwrap(t, s, v, ciphertext)
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
	require.ErrorContains(t, err, "the key is there")
	p.Delete("k")
	require.ErrorIs(t, unwrap(t, s, v, ciphertext), kmsplugin.ErrUnknownKey)
}

// An operator may lower min_decryption_version again, until a trim: what is below it is not lost.
func TestAVersionBelowMinDecryptionIsDisabledAndNotUnknown(t *testing.T) {
	p := newPlace(t)
	k, _ := keepSeldom(t, p)
	var all []kmsplugin.Sealed
	for range 3 {
		sealed, err := k.Encrypt(t.Context(), "", dek)
		require.NoError(t, err)
		all = append(all, sealed)
		p.Rotate("k")
		require.Eventually(t, func() bool {
			_ = k.Check(t.Context())
			keyID, err := k.Status(t.Context())
			return err == nil && keyID != sealed.KeyID
		}, time.Minute, time.Millisecond)
	}
	p.Trim("k", 2)
	p.Config("k", "min_encryption_version", 4)
	p.Config("k", "min_decryption_version", 4)
	restarted, _ := keepSeldom(t, p)
	for _, k := range []*kmsplugin.Keeper{k, restarted} {
		require.Eventually(t, func() bool { return k.Check(t.Context()) == nil }, time.Minute, time.Millisecond)
		for _, sealed := range all[1:] {
			_, err := k.Decrypt(t.Context(), "", sealed)
			require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
			require.NotErrorIs(t, err, kmsplugin.ErrUnknownKey)
			require.ErrorContains(t, err, "vault write transit/keys/k/config min_decryption_version=2")
		}
	}
	p.Config("k", "min_decryption_version", 2)
	for n, sealed := range all {
		got, err := restarted.Decrypt(t.Context(), "", sealed)
		if n == 0 {
			require.ErrorIs(t, err, kmsplugin.ErrUnknownKey, "what was trimmed is gone")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, dek, got)
	}
}

func TestKeysOfOtherNamesMountsAndVersionsHaveOtherKeyIDs(t *testing.T) {
	p := newPlace(t)
	p.Rotate("k")
	p.CreateKey("other", "")
	p.Write("sys/mounts/team/transit", map[string]any{"type": "transit"})
	p.Write("team/transit/keys/k", map[string]any{})
	p.Policy("plugin", `path "transit/*" { capabilities = ["read", "update"] } path "team/transit/*" { capabilities = ["read", "update"] }`)
	seen := map[string]bool{}
	for _, key := range [][2]string{{"transit", "k"}, {"transit", "other"}, {"team/transit", "k"}} {
		p.config.Mount, p.config.Key = key[0], key[1]
		found, err := open(t, p.transit(t)).Versions(t.Context())
		require.NoError(t, err)
		for _, v := range found.All {
			require.False(t, seen[v.KeyID()], "%s %s", key, v)
			require.NotContains(t, v.KeyID(), "transit")
			seen[v.KeyID()] = true
		}
	}
	require.Len(t, seen, 4)
}

// What is in etcd names these for ever: another way to make them is a rotation of every cluster, in
// which nothing that was stored can be read.
func TestKeyIDsAreMadeInOneWayForEver(t *testing.T) {
	v := vault.VersionOf(vault.Config{Namespace: "team/a", Mount: "transit", Key: "kube"}, 7, 1767225600)
	require.Equal(t, "vault-transit", v.Kind)
	require.Equal(t, "7", v.Label)
	require.Equal(t, "\x00\x00\x00\x00\x00\x00\x00\x06team/a"+"\x00\x00\x00\x00\x00\x00\x00\x07transit"+"\x00\x00\x00\x00\x00\x00\x00\x04kube"+"\x00\x00\x00\x00iU\xb9\x00", string(v.Lineage))
	require.Equal(t, "e714c473b7f1881d0c20debd8cf9848e44ca8dfc8abdcc9add83f489dce1bcfa", v.KeyID())
	require.Equal(t, "6fdd98e32f1d8aa4d665dd01c869a4a7c81fe836e01a951406271e2422cf6292", vault.VersionOf(vault.Config{Mount: "transit", Key: "kube"}, 7, 1767225600).KeyID())
}

// Two keys of one name and version, made in the same second, are two if they are in two namespaces. A
// stand-in for a Vault that has those: it has the same key in each.
func TestAKeyOfAnotherNamespaceHasAnotherKeyID(t *testing.T) {
	p := newPlace(t)
	p.before(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.Header.Get("X-Vault-Namespace"), "/atrest-looks-whether-namespaces-are-heeded") {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"errors":["no handler for route"]}`)
			return
		}
		r.Header.Del("X-Vault-Namespace")
		next.ServeHTTP(w, r)
	})
	seen := map[string]string{}
	var first []byte
	for _, namespace := range []string{"", "team", "team/a", "a"} {
		p.config.Namespace, p.config.AuthNamespace = namespace, "/"
		s := open(t, p.transit(t))
		v := writer(t, s)
		require.NotContains(t, seen, v.KeyID(), "as of %q", seen[v.KeyID()])
		seen[v.KeyID()] = namespace
		if first == nil {
			first = wrap(t, s, v)
			continue
		}
		require.ErrorIs(t, unwrap(t, s, v, first), kmsplugin.ErrInvalid)
	}
	p.config.Namespace = "/team/" // another spelling
	require.Equal(t, "team", seen[writer(t, open(t, p.transit(t))).KeyID()])
}

func TestVersionsBelowMinDecryptionAreNoneAndThoseBelowMinEncryptionOnlyUnwrap(t *testing.T) {
	p := newPlace(t)
	s := open(t, p.transit(t))
	first := writer(t, s)
	ciphertext := wrap(t, s, first)
	p.Rotate("k")
	second := writer(t, s)
	require.Equal(t, "2", second.Label)

	p.Config("k", "min_encryption_version", 2)
	_, _, err := s.Wrap(t.Context(), first, dek, nil)
	require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled)
	require.ErrorContains(t, err, "lower it")
	require.NoError(t, unwrap(t, s, first, ciphertext))
	found, err := s.Versions(t.Context())
	require.NoError(t, err)
	require.Len(t, found.All, 2)
	require.Equal(t, 1, found.Oldest)

	p.Config("k", "min_decryption_version", 2)
	require.ErrorIs(t, unwrap(t, s, first, ciphertext), kmsplugin.ErrKeyDisabled)
	found, err = s.Versions(t.Context())
	require.NoError(t, err)
	require.Len(t, found.All, 1)
	require.Zero(t, found.Oldest)
	require.Equal(t, second.KeyID(), found.All[found.Writes].KeyID())

	// Vault shows none below it; whoever does shows what does not unwrap.
	p.Faults().Rewrite("transit/keys/k", func(status int, body []byte) (int, []byte) {
		return status, bytes.Replace(body, []byte(`"keys":{`), []byte(`"keys":{"1":1700000000,`), 1)
	})
	found, err = s.Versions(t.Context())
	require.NoError(t, err)
	require.Len(t, found.All, 1)
}

func TestAStandbyThatLagsTakesNothingBack(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	transit := p.transit(t)
	s := open(t, transit)
	p.Rotate("k")
	require.Equal(t, "2", writer(t, s).Label)

	faults.Lag("k", 1)
	_, err := s.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
	require.ErrorContains(t, err, "the latest version is 1, and it was 2")
	_, err = open(t, transit).Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable, "another session remembers it too")

	faults.Clear()
	require.Equal(t, "2", writer(t, s).Label)
}

func TestAStandbyThatHasADeletedKeyTakesNothingBack(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	p.Rotate("k")
	s := open(t, p.transit(t))
	require.Equal(t, "2", writer(t, s).Label)
	lag := faults.Behind("k")
	p.later(t)
	p.Delete("k")
	p.CreateKey("k", "")
	after := writer(t, s)
	require.Equal(t, "1", after.Label)
	lag()
	_, err := s.Versions(t.Context())
	require.ErrorIs(t, err, kmsplugin.ErrUnavailable)
}

func TestANodeThatLagsForAMomentIsAskedAgain(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	s := open(t, p.transit(t))
	var former []byte
	faults.Rewrite("transit/keys/k", func(status int, body []byte) (int, []byte) { former = body; return status, body })
	writer(t, s)
	faults.Clear()
	p.later(t)
	p.Rotate("k")
	writer(t, s)
	asked := 0
	faults.Rewrite("transit/keys/k", func(status int, body []byte) (int, []byte) {
		if asked++; asked == 1 {
			return status, former
		}
		return status, body
	})
	require.Equal(t, "2", writer(t, s).Label)
	require.Equal(t, 2, asked)
}

func TestTheLabelIsThatOfTheCiphertext(t *testing.T) {
	p := newPlace(t)
	faults := p.Faults()
	s := open(t, p.transit(t))
	first := writer(t, s)
	p.Rotate("k")
	second := writer(t, s)
	faults.Mislabel("k", 2)
	ciphertext, used, err := s.Wrap(t.Context(), first, dek, nil)
	require.NoError(t, err)
	require.Empty(t, ciphertext)
	require.Equal(t, second.KeyID(), used.KeyID())
	faults.Clear()

	require.Contains(t, string(wrap(t, s, first)), "vault:v1:", "exactly the version that was asked for, though there is a newer one")
	require.Contains(t, string(wrap(t, s, second)), "vault:v2:")
}

func TestACiphertextOfAnotherVersionIsRefusedWithoutACall(t *testing.T) {
	p := newPlace(t)
	s := open(t, p.transit(t))
	first := writer(t, s)
	ciphertext := string(wrap(t, s, first))
	p.Rotate("k")
	second := writer(t, s)
	faults := p.Faults()
	before := faults.Requests("transit/decrypt")
	for _, foreign := range []string{
		ciphertext, "", "vault:v2:", "vault:v2", "vault:v02:" + ciphertext[9:], "vault:v-2:" + ciphertext[9:], "vault:v2:!" + ciphertext[9:],
		"vault:v2:" + ciphertext[9:] + "\n", "vault:v2:" + ciphertext[9:20], "vault:v99999999999999999999:" + ciphertext[9:], "Vault:v2:" + ciphertext[9:], "v2:" + ciphertext[9:],
	} {
		require.ErrorIs(t, unwrap(t, s, second, []byte(foreign)), kmsplugin.ErrInvalid, foreign)
	}
	require.Equal(t, before, faults.Requests("transit/decrypt"))
	require.ErrorIs(t, unwrap(t, s, second, []byte("vault:v2:"+ciphertext[9:])), kmsplugin.ErrInvalid, "which Vault says")
	require.Equal(t, before+1, faults.Requests("transit/decrypt"))
}

func TestADEKIsBoundToItsKeyID(t *testing.T) {
	for _, kind := range []string{"aes128-gcm96", "aes256-gcm96", "chacha20-poly1305"} {
		t.Run(kind, func(t *testing.T) {
			p := newPlace(t)
			p.CreateKey("of-"+kind, kind)
			p.config.Key = "of-" + kind
			policy, err := vault.Policy(p.config)
			require.NoError(t, err)
			p.Policy("plugin", policy)
			s := open(t, p.transit(t))
			v := writer(t, s)
			ciphertext := wrap(t, s, v)
			require.NoError(t, unwrap(t, s, v, ciphertext))
			_, err = s.Unwrap(t.Context(), v, ciphertext, []byte("another key_id"))
			require.ErrorIs(t, err, kmsplugin.ErrInvalid)
		})
	}
}

func TestKeysThatCannotBindADEKAreRefused(t *testing.T) {
	p := newPlace(t)
	p.CreateKey("derived", "", "derived", true)
	p.CreateKey("convergent", "", "derived", true, "convergent_encryption", true)
	p.CreateKey("rsa", "rsa-2048")
	p.CreateKey("signs", "ed25519")
	p.Policy("plugin", `path "transit/*" { capabilities = ["read", "update"] }`)
	for key, remedy := range map[string]string{"derived": "without derivation", "convergent": "without derivation", "rsa": "take aes256-gcm96", "signs": "take aes256-gcm96"} {
		p.config.Key = key
		_, err := open(t, p.transit(t)).Versions(t.Context())
		require.ErrorIs(t, err, kmsplugin.ErrKeyDisabled, key)
		require.ErrorContains(t, err, remedy)
		require.ErrorContains(t, err, "transit/keys/"+key)
	}
}

func TestOneVersionCanBePinned(t *testing.T) {
	p := newPlace(t)
	p.Rotate("k")
	p.config.KeyVersion = "1"
	require.Equal(t, "1", p.transit(t).Config().Pin)
}

func TestAKeyThatMayLeaveVaultIsToldOnce(t *testing.T) {
	for _, field := range []string{"", "exportable", "allow_plaintext_backup"} {
		p := newPlace(t)
		if field != "" {
			p.CreateKey("taken", "", field, true)
			p.config.Key = "taken"
			p.config.Auth.TokenFile = write(t, p.RootToken)
		}
		var log bytes.Buffer
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
		s := open(t, p.transit(t))
		for range 2 {
			_, err := s.Versions(ctx)
			require.NoError(t, err)
		}
		require.Equal(t, min(len(field), 1), strings.Count(log.String(), "may leave Vault"))
	}
}
