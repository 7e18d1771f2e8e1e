package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/plugintest"
	"github.com/kube-atrest/atrest/kmsplugin/vault/vaulttest"
)

// inVault is a Vault as the help has one made, and the flags that use it.
func inVault(t *testing.T) (v *vaulttest.Server, flags []string) {
	t.Helper()
	v = vaulttest.Start(t)
	v.CreateKey("kube", "")
	policy := runCommand(t, "vault", "policy", "--vault-key-path", "transit/keys/kube")
	require.Equal(t, exitDone, policy.code, policy.stderr)
	v.Policy("kube-kms", policy.stdout)
	roleID := v.AppRole(vaulttest.Role{Name: "kube-kms", Policies: []string{"kube-kms"}, TTL: time.Hour})
	secretID := filepath.Join(t.TempDir(), "secret-id")
	require.NoError(t, os.WriteFile(secretID, []byte(v.SecretID("kube-kms")), 0o600))
	return v, []string{
		"--vault-address", v.Address, "--tls-ca-file", v.CA, "--vault-key-path", "transit/keys/kube",
		"--approle-role-id", roleID, "--approle-secret-id-file", secretID,
	}
}

func TestVaultCheckShowsTheVersions(t *testing.T) {
	v, flags := inVault(t)
	v.Rotate("kube")
	got := runCommand(t, append([]string{"vault", "check"}, flags...)...)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Regexp(t, `^VERSION +MADE +KEY_ID +USE\n1 +\S+ +[0-9a-f]{64} +unwraps\n2 +\S+ +[0-9a-f]{64} +wraps\nit wraps and unwraps\n$`, got.stdout)
	got = runCommand(t, append([]string{"vault", "check", "--key-version", "1"}, flags...)...)
	require.Regexp(t, `(?s)\n1 +\S+ +[0-9a-f]{64} +wraps\n`, got.stdout)
	got = runCommand(t, append([]string{"vault", "check", "--key-version", "3"}, flags...)...)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "none of that number")
	v.Config("kube", "min_decryption_version", 2)
	got = runCommand(t, append([]string{"vault", "check"}, flags...)...)
	require.Equal(t, exitDone, got.code, got.stderr)
	require.Regexp(t, `wraps\nthere are others: key disabled: min_decryption_version is 2, .*\nit wraps and unwraps\n$`, got.stdout)
	v.Seal()
	got = runCommand(t, append([]string{"vault", "check"}, flags...)...)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "unseal it")
}

// requireReads has a plugin open something. A call that takes 2.5 s fails, as one may on a busy machine:
// what is of interest is that one does not.
func requireReads(t *testing.T, client kmsapi.KeyManagementServiceClient, sealed *kmsapi.EncryptResponse) {
	t.Helper()
	require.Eventually(t, func() bool {
		read, err := client.Decrypt(t.Context(), &kmsapi.DecryptRequest{Ciphertext: sealed.Ciphertext, KeyId: sealed.KeyId, Annotations: sealed.Annotations})
		return err == nil && string(read.Plaintext) == "dek"
	}, time.Minute, time.Millisecond)
}

// requireAnnounces has Status tell a key_id, and no other one before that.
func requireAnnounces(t *testing.T, client kmsapi.KeyManagementServiceClient, keyID string) {
	t.Helper()
	var told string
	require.Eventually(t, func() bool {
		answer, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
		told = answer.GetKeyId()
		return err == nil
	}, time.Minute, time.Millisecond)
	require.Equal(t, keyID, told)
}

func TestVaultServeFollowsARotation(t *testing.T) {
	v, flags := inVault(t)
	endpoint := plugintest.Endpoint(t)
	code, log := serveGroup(t, "vault", append(flags, "--listen", endpoint, "--poll", "20ms"), func() {
		client := plugintest.Dial(t, endpoint)
		var sealed *kmsapi.EncryptResponse
		require.Eventually(t, func() (ok bool) {
			var err error
			sealed, err = client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
			return err == nil
		}, time.Minute, time.Millisecond)
		v.Rotate("kube")
		require.Eventually(t, func() bool {
			answer, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
			return err == nil && answer.KeyId != sealed.KeyId
		}, time.Minute, time.Millisecond)
		requireReads(t, client, sealed)
	})
	require.Equal(t, exitDone, code, log)
	require.Contains(t, log, `key="transit/keys/kube"`)
	require.NotContains(t, log, "hvs.")
}

// The rotation of two plugins on one key: each wraps under its own version and reads what the other
// one wrote, whatever becomes the newest, and when the first is gone nothing is lost.
func TestARotationOfTwoPluginsOnOneKey(t *testing.T) {
	v, flags := inVault(t)
	at := func(version, endpoint string) []string {
		return append(append([]string{}, flags...), "--listen", endpoint, "--poll", "20ms", "--key-version", version)
	}
	wrapped := func(client kmsapi.KeyManagementServiceClient) (sealed *kmsapi.EncryptResponse) {
		require.Eventually(t, func() (ok bool) {
			var err error
			sealed, err = client.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
			return err == nil
		}, time.Minute, time.Millisecond)
		return sealed
	}
	first, second := plugintest.Endpoint(t), plugintest.Endpoint(t)
	var byFirst *kmsapi.EncryptResponse
	code, log := serveGroup(t, "vault", at("2", second), func() {
		newer := plugintest.Dial(t, second)
		_, err := newer.Encrypt(t.Context(), &kmsapi.EncryptRequest{Plaintext: []byte("dek")})
		require.Error(t, err, "there is no version 2 yet, and no other one is wrapped with")
		code, log := serveGroup(t, "vault", at("1", first), func() {
			older := plugintest.Dial(t, first)
			wrapped(older)
			v.Rotate("kube")
			for range 3 { // also after it was rotated once more
				byFirst = wrapped(older)
				bySecond := wrapped(newer)
				require.Contains(t, string(byFirst.Ciphertext), "vault:v1:")
				require.Contains(t, string(bySecond.Ciphertext), "vault:v2:")
				require.NotEqual(t, byFirst.KeyId, bySecond.KeyId)
				for client, own := range map[kmsapi.KeyManagementServiceClient]*kmsapi.EncryptResponse{older: byFirst, newer: bySecond} {
					requireAnnounces(t, client, own.KeyId)
					requireReads(t, client, byFirst)
					requireReads(t, client, bySecond)
				}
				v.Rotate("kube")
			}
		})
		require.Equal(t, exitDone, code, log)
		requireReads(t, newer, byFirst)
	})
	require.Equal(t, exitDone, code, log)
	require.Contains(t, string(byFirst.Ciphertext), "vault:v1:")
}

func TestVaultServeStartsWithoutVault(t *testing.T) {
	v, flags := inVault(t)
	v.Down()
	endpoint := plugintest.Endpoint(t)
	code, log := serveGroup(t, "vault", append(flags, "--listen", endpoint, "--poll", "20ms"), func() {
		client := plugintest.Dial(t, endpoint)
		_, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
		require.Error(t, err)
		v.Up()
		require.Eventually(t, func() bool {
			_, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
			return err == nil
		}, time.Minute, time.Millisecond)
	})
	require.Equal(t, exitDone, code, log)
}

// A key that can never be served with ends the command at the start, as "check" does, and leaves
// nothing behind.
func TestAKeyOfTheWrongKindEndsTheCommandWithARemedy(t *testing.T) {
	v, flags := inVault(t)
	v.CreateKey("derived", "", "derived", true)
	v.CreateKey("convergent", "", "derived", true, "convergent_encryption", true)
	v.CreateKey("rsa", "rsa-2048")
	v.CreateKey("signs", "ed25519")
	v.Policy("kube-kms", `path "transit/*" { capabilities = ["read", "update"] }`)
	for key, remedy := range map[string]string{
		"derived": "take a key without derivation", "convergent": "take a key without derivation",
		"rsa": "take aes256-gcm96", "signs": "take aes256-gcm96",
	} {
		endpoint := plugintest.Endpoint(t)
		for _, verb := range [][]string{{"check"}, {"serve", "--listen", endpoint}} {
			got := runCommand(t, append(append([]string{"vault"}, verb...), append(flags, "--vault-key-path", "transit/keys/"+key)...)...)
			require.Equal(t, exitUsage, got.code, got.stderr)
			require.Contains(t, got.stderr, remedy)
			require.Contains(t, got.stderr, "transit/keys/"+key)
			require.Empty(t, got.stdout)
			require.NotContains(t, got.stderr, "serving")
		}
		requireReleased(t, endpoint)
	}
}

func TestANamespaceThatVaultDoesNotHeedEndsTheCommandWithARemedy(t *testing.T) {
	_, flags := inVault(t)
	for _, verb := range [][]string{{"check"}, {"serve", "--listen", plugintest.Endpoint(t)}} {
		got := runCommand(t, append(append([]string{"vault"}, verb...), append(flags, "--vault-namespace", "team")...)...)
		require.Equal(t, exitUsage, got.code, got.stderr)
		require.Contains(t, got.stderr, "leave the namespace team away")
	}
}

// What may be over soon ends nothing, nor does a key that was deleted: a backup may bring it back.
func TestWhatIsWrongWithVaultForNowDoesNotEndTheCommand(t *testing.T) {
	for name, test := range map[string]struct {
		wrong, right func(v *vaulttest.Server)
		says         string
	}{
		"sealed": {func(v *vaulttest.Server) { v.Seal() }, func(v *vaulttest.Server) { v.Unseal() }, "unseal it"},
		"no key": {func(v *vaulttest.Server) { v.Delete("kube") }, func(v *vaulttest.Server) { v.CreateKey("kube", "") }, "deleted, or never made"},
	} {
		t.Run(name, func(t *testing.T) {
			v, flags := inVault(t)
			test.wrong(v)
			endpoint := plugintest.Endpoint(t)
			code, log := serveGroup(t, "vault", append(flags, "--listen", endpoint, "--poll", "20ms"), func() {
				client := plugintest.Dial(t, endpoint)
				_, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
				require.Error(t, err)
				test.right(v)
				require.Eventually(t, func() bool {
					_, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
					return err == nil
				}, time.Minute, time.Millisecond)
			})
			require.Equal(t, exitDone, code, log)
			require.Regexp(t, `(?m)the key cannot be used yet.*`+test.says, log)
		})
	}
}

// The session of the first look is the one that is served with: a second login might find a
// secret-id used up, as that of one use.
func TestTheFirstLookCostsNoLogin(t *testing.T) {
	v, flags := inVault(t)
	faults := v.Faults()
	endpoint := plugintest.Endpoint(t)
	code, log := serveGroup(t, "vault", append(flags, "--listen", endpoint, "--poll", "20ms"), func() {
		client := plugintest.Dial(t, endpoint)
		require.Eventually(t, func() bool {
			_, err := client.Status(t.Context(), &kmsapi.StatusRequest{})
			return err == nil
		}, time.Minute, time.Millisecond)
		require.Equal(t, 1, faults.Requests("auth/approle/login"))
		require.Zero(t, faults.Requests("auth/token/revoke-self"))
	})
	require.Equal(t, exitDone, code, log)
	require.Equal(t, 1, faults.Requests("auth/token/revoke-self"))
}

func TestMistakesWithVault(t *testing.T) {
	v, right := inVault(t)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	at := func(more ...string) []string { return append(append([]string{}, right...), more...) }
	for name, test := range map[string]struct {
		args    []string
		problem string
	}{
		"nothing":           {nil, "not given: --vault-address, --vault-key-path"},
		"no login":          {[]string{"--vault-address", v.Address, "--vault-key-path", "transit/keys/kube"}, "0 ways to log in"},
		"two logins":        {at("--token-file", "x"), "2 ways to log in"},
		"http":              {at("--vault-address", "http://vault:8200"), "give https"},
		"a path":            {at("--vault-address", v.Address+"/v1"), "has a path"},
		"user info":         {at("--vault-address", "https://me:sesame@vault"), "user info"},
		"no keys in path":   {at("--vault-key-path", "transit/kube"), "such as transit/keys/kube"},
		"a key with slash":  {at("--vault-key-path", "transit/keys/a/b"), "no slash"},
		"a missing file":    {at("--approle-secret-id-file", "/none"), "put it there"},
		"a version of none": {at("--key-version", "latest"), "1 or higher"},
		"a mount of none":   {[]string{"--vault-address", v.Address, "--vault-key-path", "transit/keys/kube", "--token-file", empty, "--auth-mount", "approle"}, "leave one of the two out"},
		"half a cert":       {at("--tls-cert-file", "x"), "go together"},
		"an argument":       {at("kube"), `unexpected argument "kube"`},
		"an empty file":     {at("--approle-secret-id-file", empty), "write it again"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, verb := range [][]string{{"check"}, {"serve", "--listen", plugintest.Endpoint(t)}} {
				got := runCommand(t, append(append([]string{"vault"}, verb...), test.args...)...)
				require.Equal(t, exitUsage, got.code, got.stderr)
				require.Empty(t, got.stdout)
				require.Contains(t, got.stderr, test.problem)
				require.NotContains(t, got.stderr, "sesame")
				require.Contains(t, got.stderr, "run 'atrest-kms-plugin vault "+verb[0]+" --help'")
			}
		})
	}
	got := runCommand(t, "vault", "serve", "--listen", "unix:///x", "--concurrency", "0", right[0], right[1], right[2], right[3], right[4], right[5], right[6], right[7], right[8], right[9])
	require.Equal(t, exitUsage, got.code)
	got = runCommand(t, append([]string{"vault", "serve", "--listen", "unix:///x", "--pin", "7"}, right...)...)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "--key-version")
	got = runCommand(t, append([]string{"vault", "check", "--timeout", "0s"}, right...)...)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "--timeout is 0s")
	got = runCommand(t, "vault", "policy", "--vault-key-path", "transit/keys/k", "--vault-namespace", "b", "--vault-auth-namespace", "a")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.stderr, "log in at the same one, or above")
}

func TestTheHelpOfVaultNamesItsFlags(t *testing.T) {
	page, serve := runCommand(t, "vault", "--help").stdout, runCommand(t, "vault", "serve", "--help").stdout
	named := regexp.MustCompile(`--[a-z-]+`).FindAllString(strings.Split(page, "Usage:")[0], -1)
	require.NotEmpty(t, named)
	for _, flag := range named {
		if flag == "--encryption-provider-config" || flag == "--help" {
			continue
		}
		require.Contains(t, serve, "      "+flag+" ", "the page names it")
	}
	require.NotContains(t, serve, "--pin ")
}

func TestThePageOfVaultHasItsFlags(t *testing.T) {
	page, err := os.ReadFile("../../../docs/plugins/vault.md")
	require.NoError(t, err)
	of := map[string]bool{}
	newVaultServe().Flags().VisitAll(func(f *pflag.Flag) { of["--"+f.Name] = true })
	for _, flag := range regexp.MustCompile("--[a-z][a-z-]+").FindAllString(string(page), -1) {
		require.True(t, of[flag], "%s is no flag", flag)
	}
	newVaultCheck().Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "timeout" {
			require.Contains(t, string(page), "`--"+f.Name+"`")
		}
	})
}

// interrupted is a back end that is looked at as the command is stopped, or its time is over.
type interrupted struct {
	kmsplugin.Session
	stop   context.CancelFunc
	closed func(error)
}

func (i interrupted) Open(context.Context) (kmsplugin.Session, error) { return i, nil }

func (i interrupted) Versions(ctx context.Context) (kmsplugin.Versions, error) {
	i.stop()
	return kmsplugin.Versions{}, ctx.Err()
}

func (i interrupted) Close(ctx context.Context) error {
	i.closed(ctx.Err())
	return nil
}

func TestACheckThatIsInterruptedLeavesNoTokenBehind(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	times := 0
	err := try(ctx, &cobra.Command{}, interrupted{stop: stop, closed: func(err error) {
		times++
		require.NoError(t, err)
	}}, "")
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, times)
}
