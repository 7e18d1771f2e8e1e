package bundle

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// vaultWith are Vault settings with a line more, or another in place of one.
func vaultWith(field, line string) string {
	var out []string
	for _, l := range strings.Split(strings.TrimRight(vaultSettings, "\n"), "\n") {
		if !strings.HasPrefix(strings.TrimSpace(l), field+":") {
			out = append(out, l)
		} else if line != "" {
			out = append(out, line)
			line = ""
		}
	}
	return strings.Join(append(out, line), "\n")
}

func TestSettingsThatAreAccepted(t *testing.T) {
	for name, text := range map[string]string{
		"vault":                    vaultSettings,
		"vault, all of it":         vaultSettings + "  namespace: team/a\n  authNamespace: /\n  keyVersion: \"3\"\n  poll: 10s\n  holdDown: 0s\n",
		"a mount named keys":       vaultWith("keyPath", "  keyPath: transit/keys/k/keys/j"),
		"an address with a slash":  vaultWith("address", "  address: https://vault/"),
		"http to an agent":         vaultWith("address", "  address: http://127.0.0.1:8200\n  insecureHTTP: true") + "\n",
		"token":                    vaultWith("appRole", "    token: {secret: t}"),
		"jwt":                      vaultWith("appRole", "    jwt: {role: kube, file: /run/spire/jwt}"),
		"cert":                     strings.Replace(vaultWith("appRole", "    cert: {}"), "{caBundle: vault-ca}", "{certificate: mine}", 1),
		"keyFile":                  keyFileSettings("/var/lib/atrest/kek.json"),
		"keyFile, JSON":            `{"apiVersion":"` + APIVersion + `","kind":"PluginSettings","keyFile":{"path":"/k","pin":"2-abcdef01"}}`,
		"pkcs11":                   wrapper + "pkcs11: {module: /usr/lib/softhsm/libsofthsm2.so, token: atrest, key: kek, secret: hsm, sessions: 4}",
		"pkcs11 by serial":         wrapper + "pkcs11: {module: /m.so, tokenSerial: \"1f\", key: kek, secret: hsm}",
		"tpm":                      wrapper + "tpm: {path: /var/lib/atrest/tpm.json, device: /dev/tpmrm0}",
		"a program by digest":      keyFileSettings("/k") + "program: {path: /usr/bin/atrest-kms-plugin, sha256: \"" + digest + "\"}",
		"the node's own by digest": keyFileSettings("/k") + "program: {sha256: \"" + digest + "\"}",
		"an image":                 keyFileSettings("/k") + "program: {image: quay.io/a_b/c@" + digest + "}",
		"an image in capitals":     keyFileSettings("/k") + "program: {image: quay.io/Org/x@" + digest + "}",
		"a long namespace":         vaultSettings + "  namespace: " + strings.Repeat("ä", 4096),
		"an image on this host":    keyFileSettings("/k") + "program: {image: localhost:5000/x@" + digest + "}",
		"command":                  command("--socket=$(socket)", "--cost=$$5", "--token=$(secret/t/token)", "--ca", "$(configmap/ca/ca.crt)"),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "http to an agent" {
				text = strings.Replace(text, "  tls: {caBundle: vault-ca}\n", "", 1)
			}
			s, err := ParseSettings([]byte(text))
			require.NoError(t, err)
			require.NotEmpty(t, s.Backend())
		})
	}
}

func command(arguments ...string) string {
	text := wrapper + "program: {path: /usr/bin/other, sha256: \"" + digest + "\"}\ncommand:\n  kek: projects/p/keys/k\n  arguments:\n"
	for _, a := range arguments {
		text += "  - \"" + a + "\"\n"
	}
	return text
}

func TestSettingsThatAreRefused(t *testing.T) {
	key := keyFileSettings("/k")
	for _, row := range []struct{ problem, text string }{
		{"neither YAML nor JSON", ""},
		{"write kind: PluginSettings", "keyFile: {path: /k}"},
		{"write kind: PluginSettings", strings.Replace(key, "v1alpha1", "v1", 1)},
		{"0 back ends are given", wrapper},
		{"2 back ends are given", key + "tpm: {path: /k}"},
		{`unknown field "keyfile"`, wrapper + "keyfile: {path: /k}"},
		{`unknown field "keyFile.Path"`, wrapper + "keyFile: {Path: /k}"},
		{"has a key twice", wrapper + "keyFile: {path: /k, path: /j}"},
		{"more than one YAML document", key + "---\nkind: x\n"},
		{"65536 are read", strings.Repeat(" ", 65537)},
		{"keyFile.path is not given", wrapper + "keyFile: {}"},
		{"keyFile.path is no absolute path", keyFileSettings("k")},
		{"keyFile.path is no absolute path", keyFileSettings("/a/../k")},
		{"keyFile.path is no absolute path", keyFileSettings("/")},
		{"cannot be printed", wrapper + `keyFile: {path: "/k\n--create"}`},
		{"16384 are allowed", keyFileSettings("/" + strings.Repeat("k", 16384))},
		{"keyFile.poll is no time", wrapper + "keyFile: {path: /k, poll: often}"},
		{"keyFile.poll is no time", wrapper + "keyFile: {path: /k, poll: 0s}"},
		{"keyFile.holdDown is no time", wrapper + "keyFile: {path: /k, holdDown: -1s}"},

		{"program.path is given without program.sha256", key + "program: {path: /p}"},
		{"program.path is no absolute path", key + "program: {path: p, sha256: \"" + digest + "\"}"},
		{"program.sha256 is no digest", key + "program: {sha256: abc}"},
		{"not by a tag", key + "program: {image: quay.io/a/b:latest}"},
		{"program.image", key + "program: {image: quay.io/a/b@sha256:abc}"},
		{"program.image", key + "program: {image: quay.io//b@" + digest + "}"},
		{"program.image", key + "program: {image: quay.io/b/@" + digest + "}"},
		{"has no host", key + "program: {image: library/b@" + digest + "}"},

		{"vault.address is not given", vaultWith("address", "")},
		{"set vault.insecureHTTP", vaultWith("address", "  address: http://vault:8200")},
		{"vault.tls is given, and vault.address has http", vaultWith("address", "  address: http://vault:8200\n  insecureHTTP: true")},
		{"it has a path", vaultWith("address", "  address: https://vault/v1")},
		{"it has a query", vaultWith("address", "  address: https://vault?x=1")},
		{"it has a query", vaultWith("address", `  address: "https://vault#"`)},
		{"it has user info", vaultWith("address", "  address: https://me:sesame@vault")},
		{"it has another scheme", vaultWith("address", "  address: ftp://vault")},
		{"it has no host", vaultWith("address", "  address: vault.example.com:8200")},
		{"begins or ends with a slash", vaultSettings + "  namespace: a/"},
		{"has a space", vaultSettings + "  namespace: a b"},
		{"keeps for itself", vaultSettings + "  namespace: root"},
		{"keeps for itself", vaultSettings + "  authNamespace: sys"},
		{"vault.keyPath is not given", vaultWith("keyPath", "")},
		{"vault.keyPath", vaultWith("keyPath", "  keyPath: transit/kube")},
		{"vault.keyPath", vaultWith("keyPath", "  keyPath: /transit/keys/kube")},
		{"vault.keyPath", vaultWith("keyPath", "  keyPath: transit/keys/kube/")},
		{"vault.keyPath", vaultWith("keyPath", "  keyPath: transit//keys/kube")},
		{"vault.keyPath", vaultWith("keyPath", "  keyPath: a/../keys/kube")},
		{"vault.keyPath", vaultWith("keyPath", "  keyPath: a@b/keys/kube")},
		{"vault.keyPath", vaultWith("keyPath", "  keyPath: transit/keys/-bad")},
		{"vault.keyPath", vaultWith("keyPath", "  keyPath: transit/keys/bad-")},
		{"vault.keyPath", vaultWith("keyPath", "  keyPath: transit/keys/key~backup")},
		{"vault.keyVersion", vaultSettings + "  keyVersion: latest"},
		{"0 ways to log in", vaultWith("appRole", "    mount: x")},
		{"2 ways to log in", vaultSettings + "    token: {secret: t}"},
		{"needs vault.tls.certificate", vaultWith("appRole", "    cert: {}")},
		{"vault.auth.appRole.secret is not given", vaultWith("appRole", "    appRole: {}")},
		{"is no name of a secret", vaultWith("appRole", "    appRole: {secret: Invalid_name!}")},
		{"is no name of a configmap", vaultWith("tls", "  tls: {caBundle: a..b}")},
		{"give the secret a shorter name", vaultWith("appRole", "    appRole: {secret: "+strings.Repeat("a", 230)+"}")},
		{"serverName", vaultWith("tls", "  tls: {serverName: invalid_hostname!}")},
		{"vault.auth.jwt.role is not given", vaultWith("appRole", "    jwt: {file: /jwt}")},
		{"vault.auth.jwt.file is no absolute path", vaultWith("appRole", "    jwt: {role: r, file: jwt}")},
		{"a token has none", vaultWith("appRole", "    token: {secret: t}\n    mount: x")},

		{"name the token by one of them", wrapper + "pkcs11: {module: /m.so, key: kek, secret: hsm}"},
		{"pkcs11.secret is not given", wrapper + "pkcs11: {module: /m.so, token: t, key: kek}"},
		{"pkcs11.sessions is -1", wrapper + "pkcs11: {module: /m.so, token: t, key: kek, secret: hsm, sessions: -1}"},
		{"tpm.path is not given", wrapper + "tpm: {}"},

		{"program is not given", wrapper + "command: {kek: k, arguments: [\"$(socket)\"]}"},
		{"command.kek is not given", strings.Replace(command("$(socket)"), "projects/p/keys/k", "\"\"", 1)},
		{"name no socket", command("--help")},
		{"64 are allowed", command(append(make([]string, 64), "$(socket)")...)},
		{"4096 are allowed", command("$(socket)", strings.Repeat("a", 4097))},
		{"command.arguments[1] has a $", command("$(socket)", "$HOME")},
		{"command.arguments[1] has a $", command("$(socket)", "$(secret/t)")},
		{"command.arguments[1] has a $", command("$(socket)", "$(secret/t/token")},
		{"command.arguments[1] has a $", command("$(socket)", "$(env/t/token)")},
		{"it is no UTF-8", `{"apiVersion": "` + APIVersion + `", "kind": "PluginSettings", "keyFile": {"path": "/k` + "\xff" + `"}}`},
		{"is no data key", command("$(socket)", "$(secret/t/..)")},
	} {
		s, err := ParseSettings([]byte(row.text))
		require.Nil(t, s, row.problem)
		require.ErrorContains(t, err, row.problem, row.text)
		require.NotContains(t, err.Error(), "sesame")
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestAnErrorOfSettingsRepeatsNoValue(t *testing.T) {
	for _, text := range []string{
		wrapper + "vault: sesame",
		wrapper + "sesame-of-more-than-thirty-two-characters: 1",
		wrapper + "vault: {tls: [sesame]}",
		"sesame: &a [*a, *a]",
		"sesame\n  secretID: {",
		`{"vault": sesame`,
		"\x00sesame",
		vaultWith("appRole", "    token: {secret: hvs.Sesame-sesame}"), // by who takes the name for the token
		wrapper + "pkcs11: {module: /m.so, token: t, key: kek, secret: Sesame-sesame}",
		command("$(socket)", "$(secret/Sesame-sesame/token)"),
	} {
		_, err := ParseSettings([]byte(text))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "sesame")
	}
}

func FuzzSettings(f *testing.F) {
	for _, text := range []string{vaultSettings, keyFileSettings("/k"), command("$(endpoint)", "$(secret/a/b)")} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseSettings(text)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		at := Place{Socket: "/run/kms-7.sock", Files: "/files"}
		for _, argument := range s.arguments(7, at) {
			require.NotContains(t, argument, "\x00")
		}
		for _, part := range s.Parts() {
			got, _, err := ParsePart(part.FileName(1))
			require.NoError(t, err)
			require.Equal(t, part, got)
		}
	})
}
