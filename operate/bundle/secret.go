package bundle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Secret is the bundle as an object of Kubernetes, for the data that [Bundle.Encode]
// gives.
func (b *Bundle) Secret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       corev1.SecretTypeOpaque,
		Data:       b.Encode(),
	}
}

// FromSecret is the bundle in a Secret, as [Decode] reads it. The Secret is not kept.
func FromSecret(s *corev1.Secret) (*Bundle, error) {
	if len(s.StringData) > 0 {
		return nil, &Error{Problems: []error{fmt.Errorf("the Secret has stringData: give all of it as data")}}
	}
	return Decode(s.Data)
}

// MarshalSecret is [Bundle.Secret] as YAML. It holds credentials.
func (b *Bundle) MarshalSecret(namespace, name string) ([]byte, error) {
	return yaml.Marshal(b.Secret(namespace, name))
}

// maxSecret is the longest text of a Secret that is read, in bytes: base64 and metadata
// make more of it than its data.
const maxSecret = 3 * MaxSize

// ParseSecret reads the YAML or JSON of a Secret, as [Bundle.MarshalSecret] or kubectl
// writes it.
func ParseSecret(text []byte) (*Bundle, error) {
	if len(text) > maxSecret {
		return nil, &Error{Problems: []error{fmt.Errorf("a Secret of %d bytes, and at most %d are read", len(text), maxSecret)}}
	}
	var s corev1.Secret
	if err := decodeStrict(text, &s); err != nil {
		return nil, &Error{Problems: []error{fmt.Errorf("the Secret: %w", err)}}
	}
	if s.Kind != "Secret" || s.APIVersion != "v1" {
		return nil, &Error{Problems: []error{fmt.Errorf("it is no Secret of apiVersion v1")}}
	}
	return FromSecret(&s)
}
