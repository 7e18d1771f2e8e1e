package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VaultKMSConfig is a key in Vault, in an object of its own, which
// spec.encryption.kms.pluginConfig of an EncryptionAtRest names.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=vkc,categories=atrest
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.vaultAddress`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.vaultNamespace`
// +kubebuilder:printcolumn:name="Key",type=string,JSONPath=`.spec.vaultKeyPath`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.status.kmsPluginImage`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VaultKMSConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the key and the way to it, as spec.encryption.kms.vault of an EncryptionAtRest.
	//
	// +required
	Spec Vault `json:"spec"`

	// status is written by who provides the plugin.
	//
	// +optional
	Status VaultKMSConfigStatus `json:"status,omitempty"`
}

// VaultKMSConfigStatus is what the provider of the plugin tells.
type VaultKMSConfigStatus struct {
	// kmsPluginImage is the image of the plugin, by its digest, where the provider chooses it.
	//
	// +optional
	KMSPluginImage Image `json:"kmsPluginImage,omitempty"`
}

// VaultKMSConfigList is a list of them.
//
// +kubebuilder:object:root=true
type VaultKMSConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VaultKMSConfig `json:"items"`
}
