package controller

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/keys"
)

const viaVault = `
metadata: {name: cluster}
spec:
  encryption:
    type: KMS
    kms:
      type: Vault
      timeout: 3s
      vault:
        vaultAddress: https://vault.example.com:8200
        vaultKeyPath: transit/keys/kube
        tls: {caBundle: {name: vault-ca}}
        authentication: {type: AppRole, appRole: {secret: {name: vault-approle}}}
`

const viaPluginConfig = `
metadata: {name: cluster}
spec:
  encryption:
    type: KMS
    kms: {pluginConfig: {apiVersion: encryption.kube-atrest.io/v1alpha1, resource: vaultkmsconfigs, name: vault}}
`

func wantedOf(t *testing.T, text string) *v1alpha1.EncryptionAtRest {
	t.Helper()
	o := new(v1alpha1.EncryptionAtRest)
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), o))
	return o
}

// cluster is what is in a namespace, by source and name, and the objects of plugins.
type cluster struct {
	data    map[string]map[string][]byte
	plugins map[string]*v1alpha1.VaultKMSConfig
	reads   map[string]int
}

var errNotFound = errors.New("not found")

func (c *cluster) Data(source bundle.Source, name string) (map[string][]byte, error) {
	id := string(source) + "/" + name
	c.reads[id]++
	if data, ok := c.data[id]; ok {
		return data, nil
	}
	return nil, errNotFound
}

func (c *cluster) VaultKMSConfig(name string) (*v1alpha1.VaultKMSConfig, error) {
	if p, ok := c.plugins[name]; ok {
		return p, nil
	}
	return nil, errNotFound
}

func withVault(t *testing.T) *cluster {
	return &cluster{
		data: map[string]map[string][]byte{
			"secret/vault-approle": {"role-id": []byte("a role"), "secret-id": []byte("a secret"), "note": []byte("for people")},
			"configmap/vault-ca":   {"ca-bundle.crt": []byte("a CA"), "other": []byte("of somebody else")},
		},
		plugins: map[string]*v1alpha1.VaultKMSConfig{"vault": {Spec: *wantedOf(t, viaVault).Spec.Encryption.KMS.Vault}},
		reads:   map[string]int{},
	}
}

func TestWhatIsWantedHasTheFilesThatThePluginNeedsAndNoOthers(t *testing.T) {
	c := withVault(t)
	d, err := Wanted(wantedOf(t, viaVault), c)
	require.NoError(t, err)
	require.Equal(t, keys.KMS, d.Mode)
	require.Equal(t, []string{"secrets", "configmaps"}, d.Resources, "which are the default")
	require.Equal(t, 3*time.Second, d.Plugin.Timeout)
	require.Equal(t, map[bundle.Part][]byte{
		{Source: bundle.Secret, Name: "vault-approle", Key: "role-id"}:     []byte("a role"),
		{Source: bundle.Secret, Name: "vault-approle", Key: "secret-id"}:   []byte("a secret"),
		{Source: bundle.ConfigMap, Name: "vault-ca", Key: "ca-bundle.crt"}: []byte("a CA"),
	}, d.Plugin.Parts)
	settings, err := bundle.ParseSettings(d.Plugin.Settings)
	require.NoError(t, err)
	require.Equal(t, "transit/keys/kube", settings.Vault.KeyPath)
}

// A role-id and the secret-id that goes with it are of one version of the Secret.
func TestEachObjectIsReadOnce(t *testing.T) {
	c := withVault(t)
	_, err := Wanted(wantedOf(t, viaVault), c)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"secret/vault-approle": 1, "configmap/vault-ca": 1}, c.reads)
}

func TestAllThatIsMissingIsNamed(t *testing.T) {
	c := withVault(t)
	delete(c.data, "configmap/vault-ca")
	delete(c.data["secret/vault-approle"], "secret-id")
	c.data["secret/vault-approle"]["role-id"] = []byte{}
	d, err := Wanted(wantedOf(t, viaVault), c)
	require.Nil(t, d.Plugin)
	require.ErrorIs(t, err, ErrNoData)
	require.ErrorIs(t, err, errNotFound)
	for _, part := range []string{`configmap "vault-ca", key "ca-bundle.crt": not found`, `secret "vault-approle", key "secret-id"`, `secret "vault-approle", key "role-id"`} {
		require.ErrorContains(t, err, part)
	}
}

func TestAnObjectOfThePluginIsAsGoodAsWhatStandsInTheOne(t *testing.T) {
	c := withVault(t)
	want, err := Wanted(wantedOf(t, strings.Replace(viaVault, "      timeout: 3s\n", "", 1)), c)
	require.NoError(t, err)
	got, err := Wanted(wantedOf(t, viaPluginConfig), c)
	require.NoError(t, err)
	require.JSONEq(t, string(want.Plugin.Settings), string(got.Plugin.Settings))
	require.True(t, maps.EqualFunc(want.Plugin.Parts, got.Plugin.Parts, func(a, b []byte) bool { return string(a) == string(b) }))
	require.Equal(t, want.Plugin.Timeout, got.Plugin.Timeout)
}

func TestTheImageIsTheOneThatTheProviderOfThePluginHasChosen(t *testing.T) {
	c, image := withVault(t), func(c string) v1alpha1.Image {
		return v1alpha1.Image("registry.example.com/kms@sha256:" + strings.Repeat(c, 64))
	}
	c.plugins["vault"].Spec.KMSPluginImage = image("a")
	c.plugins["vault"].Status.KMSPluginImage = image("b")
	d, err := Wanted(wantedOf(t, viaPluginConfig), c)
	require.NoError(t, err)
	settings, err := bundle.ParseSettings(d.Plugin.Settings)
	require.NoError(t, err)
	require.Equal(t, string(image("b")), settings.Program.Image)
	require.Equal(t, image("a"), c.plugins["vault"].Spec.KMSPluginImage, "what was read is not changed")

	c.plugins["vault"].Status.KMSPluginImage = "registry.example.com/kms:latest"
	_, err = Wanted(wantedOf(t, viaPluginConfig), c)
	require.ErrorContains(t, err, `VaultKMSConfig "vault"`)
}

func TestWhatNobodyKnowsOrIsInvalidIsNotWanted(t *testing.T) {
	for name, test := range map[string]struct{ text, from, to, says string }{
		"another group":       {viaPluginConfig, "encryption.kube-atrest.io/v1alpha1, r", "kms.example.com/v1, r", `"vaultkmsconfigs" of "kms.example.com/v1"`},
		"another resource":    {viaPluginConfig, "vaultkmsconfigs", "cloudkmsconfigs", "cloudkmsconfigs"},
		"no such object":      {viaPluginConfig, "name: vault}", "name: other}", `VaultKMSConfig "other": not found`},
		"an object of a typo": {viaVault, "https:", "http:", "must use the 'https' scheme"},
		"another name":        {viaVault, "name: cluster", "name: mine", "its name is cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, test.text, test.from)
			d, err := Wanted(wantedOf(t, strings.Replace(test.text, test.from, test.to, 1)), withVault(t))
			require.ErrorContains(t, err, test.says)
			require.Equal(t, keys.Desired{}, d)
		})
	}
}

func TestKeysInTheClusterNeedNothingElse(t *testing.T) {
	d, err := Wanted(wantedOf(t, `
metadata: {name: cluster}
spec:
  encryption: {type: aesgcm}
  resources: [secrets]
  renewal: {reason: a leak, after: 168h}
  strict: true
  retry: once more
`), nil)
	require.NoError(t, err)
	require.Equal(t, keys.Desired{Mode: keys.AESGCM, Resources: []string{"secrets"}, Strict: true, External: "a leak", Renew: 168 * time.Hour, Retry: "once more"}, d)
	d, err = Wanted(wantedOf(t, "metadata: {name: cluster}\nspec: {encryption: {}}"), nil)
	require.NoError(t, err)
	require.Equal(t, keys.Identity, d.Mode)
}

func TestNothingThatIsShownHasACredential(t *testing.T) {
	c := withVault(t)
	d, err := Wanted(wantedOf(t, viaVault), c)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v", d, d, d), "a secret")
	delete(c.data, "configmap/vault-ca")
	_, err = Wanted(wantedOf(t, viaVault), c)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "a secret")
}
