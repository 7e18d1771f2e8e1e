package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"

	"github.com/kube-atrest/atrest/internal/apicase"
	"github.com/kube-atrest/atrest/internal/explore"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
	"github.com/kube-atrest/atrest/operate/bundle"
)

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
			t.Run(c.Name, func(t *testing.T) { tried[becomes(t, objectOf(t, c.Object(t)))]++ })
		}
	}
	for _, b := range []bundle.Backend{bundle.BackendVault, bundle.BackendKeyFile, bundle.BackendPKCS11, bundle.BackendTPM} {
		require.Positive(t, tried[b], b)
	}
}

func TestEveryOddObjectThatIsAcceptedCanBecomeABundle(t *testing.T) {
	every := 1
	if explore.Raced {
		every = 16
	}
	seen, tried := 0, 0
	for odd := range apicase.Odd(t) {
		if seen++; seen%every != 0 {
			continue
		}
		if o := objectOf(t, odd.Object); len(o.Validate()) == 0 {
			require.NotPanics(t, func() { becomes(t, o) }, odd)
			require.False(t, t.Failed(), odd)
			tried++
		}
	}
	require.Greater(t, tried, 1000/every)
}

// objectOf is an object in Go, with its defaults; the other kind is one of the first with the
// same key in it.
func objectOf(t *testing.T, object map[string]any) *v1alpha1.EncryptionAtRest {
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
		o.Spec.Encryption = &v1alpha1.Encryption{Type: v1alpha1.KMSType, KMS: kms}
	}
	d, err := Wanted(o, everything{})
	require.NoError(t, err)
	b, err := bundle.New(bundle.Draft{Revision: 1, EncryptionConfig: configOf(t, &o.Spec), Plugins: []bundle.DraftPlugin{{KeyID: last, Settings: d.Plugin.Settings, Parts: d.Plugin.Parts}}})
	require.NoError(t, err)
	require.Equal(t, settingsOf(kms), b.Plugin(last).Settings())
	return b.Plugin(last).Settings().Backend()
}

// everything has what is asked for.
type everything struct{}

func (everything) Data(bundle.Source, string) (map[string][]byte, error) {
	data := map[string][]byte{}
	for _, key := range []string{"role-id", "secret-id", "token", "tls.crt", "tls.key", "pin", "ca-bundle.crt"} {
		data[key] = []byte("content")
	}
	return data, nil
}

func (everything) VaultKMSConfig(string) (*v1alpha1.VaultKMSConfig, error) {
	return nil, errors.New("not found")
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
