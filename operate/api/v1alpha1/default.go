package v1alpha1

// The defaults, which the CustomResourceDefinition has as well.
const (
	DefaultTimeout Duration = "10s"
)

// DefaultResources are what is encrypted where nothing is said: secrets and configmaps. The
// slice is the caller's.
func DefaultResources() []ResourceName { return []ResourceName{"secrets", "configmaps"} }

// Default sets what is left out, as an apiserver does with an object that it is given.
func (e *EncryptionAtRest) Default() {
	if e.Spec.Resources == nil {
		e.Spec.Resources = DefaultResources()
	}
	if e.Spec.Encryption != nil && e.Spec.Encryption.KMS != nil && e.Spec.Encryption.KMS.Timeout == "" {
		e.Spec.Encryption.KMS.Timeout = DefaultTimeout
	}
}

// EffectiveType is the type, or identity where none is given.
func (e *Encryption) EffectiveType() EncryptionType {
	if e.Type == "" {
		return Identity
	}
	return e.Type
}
