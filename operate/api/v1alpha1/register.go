package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the types here.
var GroupVersion = schema.GroupVersion{Group: "encryption.kube-atrest.io", Version: "v1alpha1"}

// The kinds and their resources.
const (
	EncryptionAtRestKind     = "EncryptionAtRest"
	EncryptionAtRestResource = "encryptionatrests"
	VaultKMSConfigKind       = "VaultKMSConfig"
	VaultKMSConfigResource   = "vaultkmsconfigs"
)

// SingletonName is that of the one [EncryptionAtRest] that there may be.
const SingletonName = "cluster"

// AddToScheme has a scheme know the types here.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &EncryptionAtRest{}, &EncryptionAtRestList{}, &VaultKMSConfig{}, &VaultKMSConfigList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
