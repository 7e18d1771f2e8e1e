package v1alpha1_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/kube-atrest/atrest/internal/apicase"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// settingsOf are the settings of a plugin that do what is wanted.
func settingsOf(k *v1alpha1.KMS) *bundle.Settings {
	s := &bundle.Settings{APIVersion: bundle.APIVersion, Kind: bundle.SettingsKind}
	switch k.Type {
	case v1alpha1.VaultProvider:
		s.Program.Image = string(k.Vault.KMSPluginImage)
		s.Vault = vaultOf(k.Vault)
	case v1alpha1.PKCS11Provider:
		p := k.PKCS11
		s.PKCS11 = &bundle.PKCS11{Module: string(p.Module), Token: string(p.Token), TokenSerial: string(p.TokenSerial), Key: string(p.Key), Secret: p.Secret.Name,
			AllowExtractable: p.AllowExtractable, Sessions: int(p.Sessions), Pin: string(p.Pin), Serving: servingOf(p.Serving)}
	case v1alpha1.TPMProvider:
		s.TPM = &bundle.TPM{Path: string(k.TPM.Path), Device: string(k.TPM.Device), Pin: string(k.TPM.Pin), Serving: servingOf(k.TPM.Serving)}
	case v1alpha1.KeyFileProvider:
		s.KeyFile = &bundle.KeyFile{Path: string(k.KeyFile.Path), Pin: string(k.KeyFile.Pin), Serving: servingOf(k.KeyFile.Serving)}
	}
	return s
}

// vaultOf takes a slash before a namespace away, which means nothing.
func vaultOf(v *v1alpha1.Vault) *bundle.Vault {
	to := &bundle.Vault{Address: v.VaultAddress, KeyPath: v.VaultKeyPath, KeyVersion: v.KeyVersion, Serving: servingOf(v.Serving),
		Namespace: strings.TrimLeft(v.VaultNamespace, "/"), AuthNamespace: strings.TrimLeft(v.VaultAuthNamespace, "/")}
	if v.TLS != nil {
		to.TLS.ServerName = v.TLS.ServerName
		if v.TLS.CABundle != nil {
			to.TLS.CABundle = v.TLS.CABundle.Name
		}
		if v.TLS.Certificate != nil {
			to.TLS.Certificate = v.TLS.Certificate.Name
		}
	}
	a := v.Authentication
	to.Auth.Mount = a.Mount
	switch a.Type {
	case v1alpha1.VaultByAppRole:
		to.Auth.AppRole = &bundle.VaultAppRole{Secret: a.AppRole.Secret.Name, Wrapped: a.AppRole.Wrapped}
	case v1alpha1.VaultByToken:
		to.Auth.Token = &bundle.VaultToken{Secret: a.Token.Secret.Name}
	case v1alpha1.VaultByJWT:
		to.Auth.JWT = &bundle.VaultJWT{Role: string(a.JWT.Role), File: string(a.JWT.File)}
	case v1alpha1.VaultByCert:
		to.Auth.Cert = &bundle.VaultCert{}
		if a.Cert != nil {
			to.Auth.Cert.Role = string(a.Cert.Role)
		}
	}
	return to
}

func servingOf(s v1alpha1.Serving) bundle.Serving {
	return bundle.Serving{Poll: string(s.Poll), HoldDown: string(s.HoldDown)}
}

// configOf is an EncryptionConfiguration with the plugin of the highest keyID there can be.
func configOf(t *testing.T, spec *v1alpha1.EncryptionAtRestSpec) []byte {
	t.Helper()
	timeout, err := time.ParseDuration(string(spec.Encryption.KMS.Timeout))
	require.NoError(t, err)
	config := apiserverv1.EncryptionConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: "apiserver.config.k8s.io/v1", Kind: "EncryptionConfiguration"}}
	for i, r := range spec.Resources {
		config.Resources = append(config.Resources, apiserverv1.ResourceConfiguration{Resources: []string{string(r)}, Providers: []apiserverv1.ProviderConfiguration{
			{KMS: &apiserverv1.KMSConfiguration{APIVersion: "v2", Name: fmt.Sprintf("kms_%d", i), Endpoint: "unix:///run/kmsplugin/" + last.Socket(), Timeout: &metav1.Duration{Duration: timeout}}},
			{Identity: &apiserverv1.IdentityConfiguration{}},
		}})
	}
	text, err := json.Marshal(config)
	require.NoError(t, err)
	return text
}

const last = bundle.KeyID(math.MaxUint64)

func TestEveryAcceptedObjectCanBecomeABundle(t *testing.T) {
	tried := map[bundle.Backend]int{}
	for _, c := range apicase.Load(t) {
		if len(c.Errors) == 0 && !c.Served {
			t.Run(c.Name, func(t *testing.T) { tried[becomes(t, wanted(t, c.Object(t)))]++ })
		}
	}
	for _, b := range []bundle.Backend{bundle.BackendVault, bundle.BackendKeyFile, bundle.BackendPKCS11, bundle.BackendTPM} {
		require.Positive(t, tried[b], b)
	}
}

func TestEveryOddObjectThatIsAcceptedCanBecomeABundle(t *testing.T) {
	tried := 0
	for odd := range apicase.Odd(t) {
		if o := wanted(t, odd.Object); len(o.Validate()) == 0 {
			require.NotPanics(t, func() { becomes(t, o) }, odd)
			require.False(t, t.Failed(), odd)
			tried++
		}
	}
	require.Greater(t, tried, 1000)
}

// wanted is an object in Go, with its defaults; the other kind is one of the first with the
// same key in it.
func wanted(t *testing.T, object map[string]any) *v1alpha1.EncryptionAtRest {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	o := new(v1alpha1.EncryptionAtRest)
	if object["kind"] == v1alpha1.VaultKMSConfigKind {
		var config v1alpha1.VaultKMSConfig
		require.NoError(t, json.Unmarshal(text, &config))
		o.Name = v1alpha1.SingletonName
		o.Spec.Encryption = &v1alpha1.Encryption{Type: v1alpha1.KMSType, KMS: &v1alpha1.KMS{Type: v1alpha1.VaultProvider, Vault: &config.Spec}}
	} else {
		require.NoError(t, json.Unmarshal(text, o))
	}
	o.Default()
	return o
}

// becomes makes a bundle of an object, if only of its resources.
func becomes(t *testing.T, o *v1alpha1.EncryptionAtRest) bundle.Backend {
	kms := o.Spec.Encryption.KMS
	if kms == nil || kms.PluginConfig != nil {
		kms = &v1alpha1.KMS{Type: v1alpha1.KeyFileProvider, Timeout: v1alpha1.DefaultTimeout, KeyFile: &v1alpha1.KeyFile{Path: "/k"}}
		o.Spec.Encryption.KMS = kms
	}
	settings := settingsOf(kms)
	text, err := json.Marshal(settings)
	require.NoError(t, err)
	parts := map[bundle.Part][]byte{}
	for _, part := range settings.Parts() {
		parts[part] = []byte("content")
	}
	b, err := bundle.New(bundle.Draft{Revision: 1, EncryptionConfig: configOf(t, &o.Spec), Plugins: []bundle.DraftPlugin{{KeyID: last, Settings: text, Parts: parts}}})
	require.NoError(t, err)
	require.Equal(t, settings, b.Plugin(last).Settings())
	return settings.Backend()
}

// A key's Secret has a data key for each file that its plugin needs, by the names that
// OpenShift has for them.
func TestNoReferenceMakesADataKeyThatIsTooLong(t *testing.T) {
	const before, most = "encryption.apiserver.operator.openshift.io-", 253
	secret, configMap := strings.Repeat("a", 182), strings.Repeat("a", 175)
	for _, key := range []string{"role-id", "secret-id", "token", "tls.crt", "tls.key", "pin"} {
		require.LessOrEqual(t, len(before+"kms-plugin-secret-"+secret+"_"+key), most)
		require.LessOrEqual(t, len(bundle.Part{Source: bundle.Secret, Name: secret, Key: key}.FileName(last)), most)
	}
	require.LessOrEqual(t, len(before+"kms-plugin-configmap-"+configMap+"_ca-bundle.crt"), most)
	require.LessOrEqual(t, len(bundle.Part{Source: bundle.ConfigMap, Name: configMap, Key: "ca-bundle.crt"}.FileName(last)), most)
	require.Greater(t, len(before+"kms-plugin-secret-a"+secret+"_secret-id"), most, "one more is too many")
	require.Greater(t, len(before+"kms-plugin-configmap-a"+configMap+"_ca-bundle.crt"), most, "one more is too many")
}
