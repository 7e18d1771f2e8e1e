package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestABundleHasWhatItWasMadeOf(t *testing.T) {
	b := made(t, draft())
	require.Equal(t, uint64(3), b.Revision())
	require.Equal(t, configFor(7, 2), b.EncryptionConfig())
	require.Equal(t, "/run/kmsplugin", b.SocketFolder())
	require.Len(t, b.Configuration().Providers(), 3)
	plugins := b.Plugins()
	require.Len(t, plugins, 2)
	require.Equal(t, KeyID(2), plugins[0].KeyID(), "the oldest first")
	require.Equal(t, BackendKeyFile, plugins[0].Settings().Backend())
	p := b.Plugin(7)
	require.Equal(t, BackendVault, p.Settings().Backend())
	require.Equal(t, []Part{
		{ConfigMap, "vault-ca", "ca-bundle.crt"}, {Secret, "vault-approle", "role-id"}, {Secret, "vault-approle", "secret-id"},
	}, p.Parts())
	require.Equal(t, secretID, string(p.Content(Part{Secret, "vault-approle", "secret-id"})))
	require.Nil(t, p.Content(Part{Secret, "vault-approle", "token"}))
	require.Nil(t, b.Plugin(9))
}

func TestABundleWithoutAPluginIsOne(t *testing.T) {
	b := made(t, Draft{Revision: 1, EncryptionConfig: configFor()})
	require.Empty(t, b.Plugins())
	require.Empty(t, b.SocketFolder())
}

func TestABundleIsNotChangedByWhoMadeOrReadIt(t *testing.T) {
	d := draft()
	b := made(t, d)
	hash := b.Hash()
	d.EncryptionConfig[0], d.Plugins[0].Settings[0] = 'x', 'x'
	for _, content := range d.Plugins[0].Parts {
		content[0] = 'x'
	}
	b.EncryptionConfig()[0] = 'x'
	b.Plugins()[0] = nil
	for _, content := range b.Encode() {
		clear(content)
	}
	b.Plugin(7).Content(Part{Secret, "vault-approle", "secret-id"})[0] = 'x'
	again, err := Decode(b.Encode())
	require.NoError(t, err)
	require.Equal(t, hash, again.Hash())
}

func TestTheHashIsOfTheContentAndNotOfTheRevision(t *testing.T) {
	hash := made(t, draft()).Hash()
	same := draft()
	same.Revision = 4
	slices.Reverse(same.Plugins)
	require.Equal(t, hash, made(t, same).Hash())
	for name, change := range map[string]func(d *Draft){
		"configuration": func(d *Draft) { d.EncryptionConfig = append(d.EncryptionConfig, '\n') },
		"settings":      func(d *Draft) { d.Plugins[0].Settings = append(d.Plugins[0].Settings, '\n') },
		"credential":    func(d *Draft) { d.Plugins[0].Parts[Part{Secret, "vault-approle", "secret-id"}] = []byte("another") },
		"salt":          func(d *Draft) { d.Salt = []byte("salt") },
		"order":         func(d *Draft) { d.EncryptionConfig = configFor(2, 7) },
	} {
		d := draft()
		change(&d)
		require.NotEqual(t, hash, made(t, d).Hash(), name)
	}
}

// Without lengths these would be one.
func TestFieldsOfAHashDoNotRunTogether(t *testing.T) {
	require.NotEqual(t, hashOf(nil, map[string][]byte{"a": []byte("bc")}), hashOf(nil, map[string][]byte{"ab": []byte("c")}))
	require.NotEqual(t, hashOf([]byte("a"), map[string][]byte{"b": nil}), hashOf(nil, map[string][]byte{"ab": nil}))
	require.NotEqual(t, hashOf(nil, map[string][]byte{"a": []byte("b"), "c": nil}), hashOf(nil, map[string][]byte{"a": nil, "b": []byte("c")}))
}

func TestWhatIsNotCompleteIsRefused(t *testing.T) {
	approle := func(d *Draft) map[Part][]byte { return d.Plugins[0].Parts }
	for problem, change := range map[string]func(d *Draft){
		"it has no revision":                                func(d *Draft) { d.Revision = 0 },
		"its salt has 65 bytes":                             func(d *Draft) { d.Salt = make([]byte, 65) },
		"empty: write an EncryptionConfiguration into it":   func(d *Draft) { d.EncryptionConfig = nil },
		"plugin 0: a keyID is a number from 1 on":           func(d *Draft) { d.Plugins[1].KeyID = 0 },
		"plugin 2: it has no settings, kms-plugin-config-2": func(d *Draft) { d.Plugins[1].Settings = nil },
		`secret "vault-approle", key "secret-id" is missing`: func(d *Draft) {
			delete(approle(d), Part{Secret, "vault-approle", "secret-id"})
		},
		`secret "vault-approle", key "secret-id" is empty`: func(d *Draft) {
			approle(d)[Part{Secret, "vault-approle", "secret-id"}] = nil
		},
		`secret "vault-approle", key "token" is there, and its settings do not need it`: func(d *Draft) {
			approle(d)[Part{Secret, "vault-approle", "token"}] = []byte("x")
		},
		"plugin 2 is there twice, and not the same both times": func(d *Draft) {
			d.Plugins = append(d.Plugins, DraftPlugin{KeyID: 2, Settings: []byte(keyFileSettings("/other"))})
		},
		"no plugin of the bundle has the keyID 9": func(d *Draft) { d.EncryptionConfig = configFor(9, 7, 2) },
		"plugin 2: no provider of the configuration has the socket kms-2.sock": func(d *Draft) {
			d.EncryptionConfig = configFor(7)
		},
		"is no socket of a plugin": func(d *Draft) {
			d.EncryptionConfig = bytes.Replace(configFor(7, 2), []byte("kms-7.sock"), []byte("vault.sock"), 1)
		},
		"is no absolute path": func(d *Draft) {
			d.EncryptionConfig = bytes.Replace(configFor(7, 2), []byte("/run/kmsplugin/kms-7.sock"), []byte("/@kms-7.sock"), 1)
		},
		"is no absolute path: write unix:///FOLDER/kms-KEYID.sock": func(d *Draft) {
			d.EncryptionConfig = bytes.Replace(configFor(7, 2), []byte("/run/kmsplugin/kms-7"), []byte("/run/../run/kms-7"), 1)
		},
		"a node has all of them in one folder": func(d *Draft) {
			d.EncryptionConfig = bytes.Replace(configFor(7, 2), []byte("/run/kmsplugin/kms-7"), []byte("/tmp/kms-7"), 1)
		},
		"the kernel takes 107": func(d *Draft) {
			d.EncryptionConfig = bytes.ReplaceAll(configFor(7, 2), []byte("/run/"), []byte("/"+strings.Repeat("r", 100)+"/"))
		},
		"give both the same": func(d *Draft) {
			d.EncryptionConfig = append(d.EncryptionConfig, []byte("- resources: [configmaps]\n  providers:\n"+
				"  - kms: {apiVersion: v2, name: other, endpoint: \"unix:///run/kmsplugin/kms-7.sock\", timeout: 3s}\n")...)
		},
		"64 are allowed": func(d *Draft) { d.Plugins = make([]DraftPlugin, 65) },
		"fit into a Secret": func(d *Draft) {
			approle(d)[Part{Secret, "vault-approle", "secret-id"}] = make([]byte, MaxSize)
		},
	} {
		t.Run(problem, func(t *testing.T) {
			d := draft()
			change(&d)
			b, err := New(d)
			require.Nil(t, b)
			require.ErrorContains(t, err, problem)
			require.NotContains(t, err.Error(), "sesame")
			require.NotContains(t, err.Error(), "\n")
			require.IsType(t, new(Error), err)
		})
	}
}

func TestAKeyIDThatIsTwiceTheSameIsOnce(t *testing.T) {
	d := draft()
	d.Plugins = append(d.Plugins, draft().Plugins...)
	require.Equal(t, made(t, draft()).Hash(), made(t, d).Hash())
}

// Two resources on one plugin have two providers of one socket.
func TestTwoProvidersMayShareAPlugin(t *testing.T) {
	d := draft()
	d.EncryptionConfig = append(d.EncryptionConfig, []byte("- resources: [configmaps]\n  providers:\n"+
		"  - kms: {apiVersion: v2, name: other, endpoint: \"unix:///run/kmsplugin/kms-7.sock\", timeout: 10s}\n")...)
	require.Len(t, made(t, d).Plugins(), 2)
}

func TestAllThatIsWrongIsTold(t *testing.T) {
	d := draft()
	d.Revision, d.Plugins[0].Parts = 0, nil
	_, err := New(d)
	require.ErrorContains(t, err, "2 problems")
	require.ErrorContains(t, err, `secret "vault-approle", key "role-id" is missing`)
	require.ErrorContains(t, err, `secret "vault-approle", key "secret-id" is missing`)
}

func TestADecodedBundleIsTheSame(t *testing.T) {
	d := draft()
	d.Salt = []byte("of 16 bytes here")
	b := made(t, d)
	data := b.Encode()
	require.Equal(t, []string{
		"bundle", "encryption-config", "kms-plugin-config-2", "kms-plugin-config-7", "kms-plugin-configmap-vault-ca_ca-bundle.crt-7",
		"kms-plugin-secret-vault-approle_role-id-7", "kms-plugin-secret-vault-approle_secret-id-7",
	}, slices.Sorted(maps.Keys(data)))
	got, err := Decode(data)
	require.NoError(t, err)
	require.Equal(t, b, got)
	text, err := b.MarshalSecret("kube-system", "encryption-config")
	require.NoError(t, err)
	got, err = ParseSecret(text)
	require.NoError(t, err)
	require.Equal(t, b, got)
	asJSON, err := yaml.YAMLToJSON(text)
	require.NoError(t, err)
	got, err = ParseSecret(asJSON)
	require.NoError(t, err)
	require.Equal(t, b, got)
}

func TestWhatDoesNotDecodeIsRefusedWhole(t *testing.T) {
	for problem, change := range map[string]func(data map[string][]byte){
		"bundle is missing":               func(data map[string][]byte) { delete(data, "bundle") },
		"encryption-config is missing":    func(data map[string][]byte) { delete(data, "encryption-config") },
		"it has no settings":              func(data map[string][]byte) { delete(data, "kms-plugin-config-7") },
		`"README" is no part of a bundle`: func(data map[string][]byte) { data["README"] = nil },
		`"07" is no keyID`:                func(data map[string][]byte) { data["kms-plugin-config-07"] = data["kms-plugin-config-2"] },
		"not those that its hash is of":   func(data map[string][]byte) { data["kms-plugin-config-2"] = append(data["kms-plugin-config-2"], '\n') },
		"is not of kind Bundle":           func(data map[string][]byte) { data["bundle"] = []byte(`{"kind":"Secret"}`) },
		"unknown field":                   func(data map[string][]byte) { data["bundle"] = []byte(`{"kind":"Bundle","more":1}`) },
		"bundle has 1025 bytes":           func(data map[string][]byte) { data["bundle"] = make([]byte, 1025) },
		"and at most 1048576 are read":    func(data map[string][]byte) { data["encryption-config"] = make([]byte, MaxSize) },
		"1024 are read": func(data map[string][]byte) {
			for i := range 1024 {
				data[fmt.Sprint(i)] = nil
			}
		},
	} {
		t.Run(problem, func(t *testing.T) {
			data := made(t, draft()).Encode()
			change(data)
			b, err := Decode(data)
			require.Nil(t, b)
			require.ErrorContains(t, err, problem)
			require.NotContains(t, err.Error(), "sesame")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestWhatIsNoSecretIsRefused(t *testing.T) {
	for problem, text := range map[string]string{
		"no Secret of apiVersion v1":  "apiVersion: v1\nkind: ConfigMap\n",
		"unknown field":               "apiVersion: v1\nkind: Secret\ndatas: {}\n",
		"stringData":                  "apiVersion: v1\nkind: Secret\nstringData: {a: sesame}\n",
		"has a key twice":             "apiVersion: v1\nkind: Secret\ndata: {a: YQ==}\ndata: {a: YQ==}\n",
		"more than one YAML document": "apiVersion: v1\nkind: Secret\n---\napiVersion: v1\n",
		"from line 2 on":              "kind: Secret\na: sesame: sesame",
		"neither YAML nor JSON":       "",
		"are read":                    strings.Repeat(" ", maxSecret+1),
	} {
		_, err := ParseSecret([]byte(text))
		require.ErrorContains(t, err, problem)
		require.NotContains(t, err.Error(), "sesame")
	}
}

func TestNothingOfABundleShowsACredential(t *testing.T) {
	b := made(t, draft())
	for _, v := range []any{b, *b, b.Plugins(), b.Plugin(7), draft(), draft().Plugins, struct{ B *Bundle }{b}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
			text := fmt.Sprintf(verb, v)
			require.NotContains(t, text, "sesame", verb)
			require.NotContains(t, text, fmt.Sprintf("%x", "sesame"), verb)
			require.NotContains(t, text, "115 101 115 97 109 101", verb)
		}
		out, err := json.Marshal(v)
		require.NoError(t, err)
		require.NotContains(t, string(out), "sesame")
		require.NotContains(t, string(out), "c2VzYW1l")
	}
}
