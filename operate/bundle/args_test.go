package bundle

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var place = Place{Socket: "/run/kms plugin/kms-7.sock", Files: "/run/atrest/7"}

func TestWhatAPluginIsStartedWith(t *testing.T) {
	at := func(name string) string { return "/run/atrest/7/kms-plugin-" + name + "-7" }
	vault := []string{
		"vault", "serve", "--listen=unix:///run/kms%20plugin/kms-7.sock", "--vault-address=https://vault.example.com:8200",
		"--vault-key-path=transit/keys/kube",
	}
	ca := "--tls-ca-file=" + at("configmap-vault-ca_ca-bundle.crt")
	for name, row := range map[string]struct {
		settings string
		want     []string
	}{
		"approle": {vaultSettings, append(vault[:5:5], ca,
			"--approle-role-id-file="+at("secret-vault-approle_role-id"), "--approle-secret-id-file="+at("secret-vault-approle_secret-id"))},
		"wrapped": {vaultWith("appRole", "    appRole: {secret: a, wrapped: true}\n    mount: apps"), append(vault[:5:5], "--auth-mount=apps", ca,
			"--approle-role-id-file="+at("secret-a_role-id"), "--approle-secret-id-file="+at("secret-a_secret-id"), "--approle-secret-id-wrapped")},
		"token": {vaultWith("appRole", "    token: {secret: t}"), append(vault[:5:5], ca, "--token-file="+at("secret-t_token"))},
		"jwt":   {vaultWith("appRole", "    jwt: {role: kube, file: /jwt}"), append(vault[:5:5], ca, "--jwt-role=kube", "--jwt-file=/jwt")},
		"cert": {strings.Replace(vaultWith("appRole", "    cert: {role: kube}"), "{caBundle: vault-ca}", "{certificate: mine, serverName: v}", 1), append(vault[:5:5],
			"--tls-sni=v", "--tls-cert-file="+at("secret-mine_tls.crt"), "--tls-key-file="+at("secret-mine_tls.key"), "--cert-login", "--cert-role=kube")},
		"namespaces": {vaultSettings + "  namespace: a\n  authNamespace: /\n  keyVersion: \"3\"\n  poll: 5s\n", []string{
			"vault", "serve", "--listen=unix:///run/kms%20plugin/kms-7.sock", "--poll=5s", "--vault-address=https://vault.example.com:8200",
			"--vault-namespace=a", "--vault-auth-namespace=/", "--vault-key-path=transit/keys/kube", "--key-version=3", ca,
			"--approle-role-id-file=" + at("secret-vault-approle_role-id"), "--approle-secret-id-file=" + at("secret-vault-approle_secret-id"),
		}},
		"keyFile": {wrapper + "keyFile: {path: /k, pin: 2-abcdef01, holdDown: 1m}", []string{
			"keyfile", "serve", "--listen=unix:///run/kms%20plugin/kms-7.sock", "--hold-down=1m", "--key-file=/k", "--pin=2-abcdef01",
		}},
		"tpm": {wrapper + "tpm: {path: /k, device: /dev/tpmrm1}", []string{
			"tpm", "serve", "--listen=unix:///run/kms%20plugin/kms-7.sock", "--key-file=/k", "--tpm=/dev/tpmrm1",
		}},
		"pkcs11": {wrapper + "pkcs11: {module: /m.so, token: -t, tokenSerial: \"1f\", key: kek, secret: hsm, sessions: 4, allowExtractable: true}", []string{
			"pkcs11", "serve", "--listen=unix:///run/kms%20plugin/kms-7.sock", "--module=/m.so", "--token=-t", "--token-serial=1f", "--key=kek",
			"--pin-file=" + at("secret-hsm_pin"), "--allow-extractable", "--sessions=4",
		}},
		"command": {command("--at=$(endpoint)", "$(socket)", "$$(socket)", "--ca=$(configmap/ca/ca.crt)", "$(secret/t/token)"), []string{
			"--at=unix:///run/kms%20plugin/kms-7.sock", "/run/kms plugin/kms-7.sock", "$(socket)", "--ca=" + at("configmap-ca_ca.crt"), at("secret-t_token"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseSettings([]byte(row.settings))
			require.NoError(t, err)
			require.Equal(t, row.want, s.arguments(7, place))
		})
	}
}

func TestNoArgumentHoldsACredential(t *testing.T) {
	require.NotContains(t, strings.Join(made(t, draft()).Plugin(7).Arguments(place), " "), "sesame")
	d := draft()
	d.Plugins[0].Settings = []byte(command("$(socket)", "--token="+secretID, "$(secret/t/token)"))
	d.Plugins[0].Parts = map[Part][]byte{{Secret, "t", "token"}: []byte(secretID + "\n")}
	_, err := New(d)
	require.ErrorContains(t, err, `an argument has the content of secret "t", key "token" in it`)
	require.NotContains(t, err.Error(), "sesame")
}

// Two things are called a pin: the ID of a version, which is an argument, and that of a token, which is none.
func TestThePINOfATokenIsNotTakenForAVersion(t *testing.T) {
	settings := wrapper + "pkcs11: {module: /m.so, token: t, key: kek, secret: hsm, pin: " + pin + "}"
	d := Draft{Revision: 1, EncryptionConfig: configFor(7), Plugins: []DraftPlugin{{KeyID: 7, Settings: []byte(settings), Parts: map[Part][]byte{{Secret, "hsm", "pin"}: []byte(pin + "\n")}}}}
	_, err := New(d)
	require.ErrorContains(t, err, `pkcs11.pin has the content of secret "hsm", key "pin"`)
	require.NotContains(t, err.Error(), "sesame")
}

func TestABlankPINIsNotTakenForAVersionThatIsNotGiven(t *testing.T) {
	settings := wrapper + "pkcs11: {module: /m.so, token: t, key: kek, secret: hsm}"
	_, err := New(Draft{Revision: 1, EncryptionConfig: configFor(7), Plugins: []DraftPlugin{{KeyID: 7, Settings: []byte(settings), Parts: map[Part][]byte{{Secret, "hsm", "pin"}: []byte("\n")}}}})
	require.NoError(t, err) // that the token refuses it is seen where it is tried
}
