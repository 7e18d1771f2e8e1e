package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EncryptionAtRest says how the cluster is to be encrypted at rest, and tells how far it is.
// There is one, named cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ear,categories=atrest
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.encryption.type`
// +kubebuilder:printcolumn:name="Encrypted",type=string,JSONPath=`.status.conditions[?(@.type=="Encrypted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Encrypted")].reason`
// +kubebuilder:printcolumn:name="Write-Key",type=string,JSONPath=`.status.keys[?(@.role=="Write")].keyID`
// +kubebuilder:printcolumn:name="KMS",type=string,JSONPath=`.spec.encryption.kms.type`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Encrypted")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="there is one EncryptionAtRest, and its name is cluster"
type EncryptionAtRest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how the cluster is to be encrypted.
	//
	// +required
	Spec EncryptionAtRestSpec `json:"spec"`

	// status tells how far it is, and what was seen. The controller and the nodes write it.
	//
	// +optional
	Status EncryptionAtRestStatus `json:"status,omitempty"`
}

// EncryptionAtRestList is a list of them, of one at most.
//
// +kubebuilder:object:root=true
type EncryptionAtRestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EncryptionAtRest `json:"items"`
}

// EncryptionAtRestSpec is what is wanted.
type EncryptionAtRestSpec struct {
	// encryption says by what values are encrypted. What stands under spec.encryption of an
	// APIServer of OpenShift may stand here.
	//
	// +required
	Encryption *Encryption `json:"encryption,omitempty"`

	// resources are the kinds of objects that are encrypted, each as RESOURCE or
	// RESOURCE.GROUP, such as secrets or routes.route.openshift.io. Without it they are
	// secrets and configmaps. There are no wildcards, as each one is migrated, and proven to
	// be, by its name.
	//
	// +optional
	// +kubebuilder:default={"secrets","configmaps"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	Resources []ResourceName `json:"resources,omitempty"`

	// nodes are those that run an apiserver, and with it the plugins of a KMS, 100 at most.
	// Without it they are those with the label node-role.kubernetes.io/control-plane.
	//
	// +optional
	Nodes *Nodes `json:"nodes,omitempty"`

	// renewal has keys of aescbc, aesgcm and secretbox replaced. A KMS replaces its own,
	// which is noticed.
	//
	// +optional
	Renewal *Renewal `json:"renewal,omitempty"`

	// strict takes identity away from what is read, once it was proven that nothing is stored
	// as plain text. From then on, what somebody writes to etcd as plain text is no value.
	//
	// +optional
	Strict bool `json:"strict,omitempty"`

	// retry has a preflight that failed begin anew, whenever another text stands here. What
	// failed for a passing reason is tried again without it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Retry string `json:"retry,omitempty"`
}

// Encryption is by what values are encrypted.
//
// +kubebuilder:validation:XValidation:rule="has(self.type) && self.type == 'KMS' ? has(self.kms) : !has(self.kms)",message="kms config is required when encryption type is KMS, and forbidden otherwise"
// +union
type Encryption struct {
	// type is by what values are encrypted: identity is plain text; aescbc, aesgcm and secretbox
	// have keys that are kept in the cluster, where who reads the one reads the other; KMS has
	// them kept elsewhere, and needs kms. Without it, or empty, it is identity.
	//
	// +optional
	// +unionDiscriminator
	Type EncryptionType `json:"type,omitempty"`

	// kms is where the keys are, and how they are reached.
	//
	// +optional
	// +unionMember
	KMS *KMS `json:"kms,omitempty"`
}

// EncryptionType is by what values are encrypted.
//
// +kubebuilder:validation:Enum="";identity;aescbc;aesgcm;secretbox;KMS
type EncryptionType string

// The types of encryption. The empty one is identity.
const (
	Identity  EncryptionType = "identity"
	AESCBC    EncryptionType = "aescbc"
	AESGCM    EncryptionType = "aesgcm"
	Secretbox EncryptionType = "secretbox"
	KMSType   EncryptionType = "KMS"
)

// KMS is where the keys are, and how they are reached: what its type names, or an object of
// its own that pluginConfig names.
//
// +kubebuilder:validation:XValidation:rule="has(self.type) || has(self.pluginConfig)",message="type is required when pluginConfig is not set",reason=FieldValueRequired,fieldPath=".type"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || !has(self.pluginConfig)",message="pluginConfig is forbidden when type is set",reason=FieldValueForbidden,fieldPath=".pluginConfig"
// +kubebuilder:validation:XValidation:rule="has(self.type) && self.type == 'Vault' ? has(self.vault) : !has(self.vault)",message="vault config is required when kms provider type is Vault, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="has(self.type) && self.type == 'PKCS11' ? has(self.pkcs11) : !has(self.pkcs11)",message="pkcs11 config is required when kms provider type is PKCS11, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="has(self.type) && self.type == 'TPM' ? has(self.tpm) : !has(self.tpm)",message="tpm config is required when kms provider type is TPM, and forbidden otherwise"
// +kubebuilder:validation:XValidation:rule="has(self.type) && self.type == 'KeyFile' ? has(self.keyFile) : !has(self.keyFile)",message="keyFile config is required when kms provider type is KeyFile, and forbidden otherwise"
// +union
type KMS struct {
	// type is the back end: Vault, which may be OpenBao too, PKCS11 for an HSM, TPM for that of
	// each node, or KeyFile for a file on each node.
	//
	// +optional
	// +unionDiscriminator
	Type KMSProviderType `json:"type,omitempty"`

	// timeout is how long an apiserver waits for one call of a plugin, from 100ms to 1m.
	// Without it that is 10s. It changes in place.
	//
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|s|m|h)){1,4}$') && duration(self) >= duration('100ms') && duration(self) <= duration('1m')",message="timeout must be between 100ms and 1m, as in 10s"
	Timeout Duration `json:"timeout,omitempty"`

	// vault is a key in the Transit engine of HashiCorp Vault or OpenBao.
	//
	// +optional
	// +unionMember
	Vault *Vault `json:"vault,omitempty"`

	// pkcs11 is a key in a token, an HSM or SoftHSM, that each node reaches.
	//
	// +optional
	// +unionMember
	PKCS11 *PKCS11 `json:"pkcs11,omitempty"`

	// tpm is a file with keys on each node that the TPM of one of them opens.
	//
	// +optional
	// +unionMember
	TPM *TPM `json:"tpm,omitempty"`

	// keyFile is a file with keys on each node. Who reads the node's disk has the keys.
	//
	// +optional
	// +unionMember
	KeyFile *KeyFile `json:"keyFile,omitempty"`

	// pluginConfig names an object that has the settings, in place of type and what it goes
	// with: a VaultKMSConfig.
	//
	// +optional
	PluginConfig *PluginConfigReference `json:"pluginConfig,omitempty"`
}

// KMSProviderType is a back end.
//
// +kubebuilder:validation:Enum=Vault;PKCS11;TPM;KeyFile
type KMSProviderType string

// The back ends.
const (
	VaultProvider   KMSProviderType = "Vault"
	PKCS11Provider  KMSProviderType = "PKCS11"
	TPMProvider     KMSProviderType = "TPM"
	KeyFileProvider KMSProviderType = "KeyFile"
)

// PluginConfigReference names an object of the cluster that has the settings of a plugin.
type PluginConfigReference struct {
	// apiVersion is GROUP/VERSION of the object, such as encryption.kube-atrest.io/v1alpha1.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="apiVersion must be in the format <group>/<version>"
	APIVersion string `json:"apiVersion,omitempty"`

	// resource is what the API calls such objects, in the plural and in lower case, such as
	// vaultkmsconfigs.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="resource must be the plural name of a resource, in lower case"
	Resource string `json:"resource,omitempty"`

	// name is that of the object.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be a valid DNS subdomain name: contain no more than 253 characters, contain only lowercase alphanumeric characters, '-' or '.', and start and end with an alphanumeric character"
	Name string `json:"name,omitempty"`
}

// ResourceName is a resource of the Kubernetes API that is stored: RESOURCE or RESOURCE.GROUP.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be RESOURCE or RESOURCE.GROUP in lower case, such as secrets or routes.route.openshift.io, without a wildcard or a subresource"
// +kubebuilder:validation:XValidation:rule="!(self in ['apiserveripinfo', 'serviceipallocations', 'servicenodeportallocations']) && !self.endsWith('.extensions') && !self.endsWith('.events.k8s.io')",message="must be a resource that an apiserver can encrypt: write events for events.k8s.io, and the group of today for extensions"
type ResourceName string

// Nodes are those that run an apiserver, by their names or by their labels.
//
// +kubebuilder:validation:XValidation:rule="has(self.names) != has(self.matchLabels)",message="exactly one of names and matchLabels must be set"
type Nodes struct {
	// names are theirs, where no labels tell: of an apiserver outside the cluster, too.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +listType=set
	Names []NodeName `json:"names,omitempty"`

	// matchLabels are labels that all of them have, and no other.
	//
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self[key].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))",message="matchLabels must be labels of Kubernetes, such as node-role.kubernetes.io/control-plane with an empty value"
	MatchLabels map[string]LabelValue `json:"matchLabels,omitempty"`
}

// LabelValue is that of a label.
//
// +kubebuilder:validation:MaxLength=63
type LabelValue string

// NodeName is that of a node.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a node: no more than 253 lower case letters, digits, '-' and '.', and a letter or a digit at each end"
type NodeName string

// Renewal is when a key of aescbc, aesgcm or secretbox is replaced.
//
// +kubebuilder:validation:MinProperties=1
type Renewal struct {
	// reason has the key replaced whenever another text stands here, in any words.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`

	// after has the key replaced once it is that old, from 1h on, such as 168h. Without it no
	// age is too old.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}(ms|s|m|h)){1,4}$') && duration(self) >= duration('1h')",message="after must be at least 1h, as in 168h"
	After Duration `json:"after,omitempty"`
}

// Duration is a time, as 10s, 1m30s or 500ms: of hours, minutes, seconds and milliseconds.
//
// +kubebuilder:validation:MaxLength=32
type Duration string
