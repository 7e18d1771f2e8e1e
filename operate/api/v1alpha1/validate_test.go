package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	sigsjson "sigs.k8s.io/json"

	"github.com/kube-atrest/atrest/internal/apicase"
	"github.com/kube-atrest/atrest/operate/api/v1alpha1"
)

// decode is the object of a case in Go, and what there is no field for.
func decode(t *testing.T, c apicase.Case, into any) (unknown []string) {
	t.Helper()
	text, err := json.Marshal(c.Object(t))
	require.NoError(t, err)
	strict, err := sigsjson.UnmarshalStrict(text, into)
	require.NoError(t, err)
	for _, err := range strict {
		unknown = append(unknown, err.Error())
	}
	return unknown
}

func TestGoRefusesWhatTheCasesSay(t *testing.T) {
	tried := 0
	for _, c := range apicase.Load(t) {
		if c.Served {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if c.Name == "a version as a number" {
				text, err := json.Marshal(c.Object(t))
				require.NoError(t, err)
				require.Error(t, json.Unmarshal(text, new(v1alpha1.EncryptionAtRest)))
				return
			}
			_, want := c.Want()
			var unknown []string
			for _, field := range c.Unknown {
				unknown = append(unknown, `unknown field "`+field+`"`)
			}
			if c.Base == "vaultKMSConfig" {
				var o v1alpha1.VaultKMSConfig
				require.Equal(t, unknown, decode(t, c, &o))
				require.Equal(t, want, apicase.Told(o.Validate()))
				return
			}
			var o v1alpha1.EncryptionAtRest
			require.ElementsMatch(t, unknown, decode(t, c, &o))
			before := o.DeepCopy()
			require.Equal(t, want, apicase.Told(o.Validate()))
			require.Equal(t, before, &o, "Validate changes nothing")
			o.Default()
			require.Equal(t, want, apicase.Told(o.Validate()), "with defaults")
		})
		tried++
	}
	require.Greater(t, tried, 60)
}

func TestWhatIsLeftOutHasADefault(t *testing.T) {
	var o v1alpha1.EncryptionAtRest
	o.Default()
	require.Equal(t, v1alpha1.DefaultResources(), o.Spec.Resources)
	require.Nil(t, o.Spec.Encryption, "nothing is taken for a wish to decrypt")
	o.Spec.Encryption = &v1alpha1.Encryption{}
	require.Equal(t, v1alpha1.Identity, o.Spec.Encryption.EffectiveType())
	o.Spec.Encryption = &v1alpha1.Encryption{Type: v1alpha1.KMSType, KMS: &v1alpha1.KMS{}}
	o.Default()
	require.Equal(t, v1alpha1.KMSType, o.Spec.Encryption.EffectiveType())
	require.Equal(t, v1alpha1.DefaultTimeout, o.Spec.Encryption.KMS.Timeout)
	given := o.DeepCopy()
	given.Spec.Resources, given.Spec.Encryption.KMS.Timeout = []v1alpha1.ResourceName{"events"}, "3s"
	again := given.DeepCopy()
	again.Default()
	require.Equal(t, given, again, "what is given stays")
}

// Somebody may have put a credential where a name belongs, or into the address.
func TestAnErrorRepeatsNothingThatWasWritten(t *testing.T) {
	for _, c := range apicase.Load(t) {
		if c.Served || c.Base == "vaultKMSConfig" || c.Name == "a version as a number" {
			continue
		}
		var o v1alpha1.EncryptionAtRest
		decode(t, c, &o)
		text := ""
		if errs := o.Validate(); len(errs) > 0 {
			text = errs.ToAggregate().Error()
		}
		for _, written := range []string{"user:password", "invalid_secret_name", "my namespace", "evil.so"} {
			require.NotContains(t, text, written, c.Name)
		}
	}
}
