package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KEKStatus is a key of a KMS that was in use, and whether something still needs it.
type KEKStatus struct {
	// keyID is that of the key here which it was in use for.
	//
	// +required
	KeyID KeyID `json:"keyID,omitempty"`

	// remoteKeyID is the hash of its key_id, which is of one version of the key, where it is
	// known.
	//
	// +optional
	RemoteKeyID Hash `json:"remoteKeyID,omitempty"`

	// kek is where its KMS has it, in words of that KMS.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	KEK string `json:"kek,omitempty"`

	// state is InUse; NeededByBackups, where nothing in the cluster needs it; MayBeDisabled,
	// where nothing that is known does; or Unknown, where not all could be seen.
	//
	// +required
	State KEKState `json:"state,omitempty"`

	// provenTime is when that was proven.
	//
	// +optional
	ProvenTime *metav1.Time `json:"provenTime,omitempty"`

	// backups are those that cannot be read without it.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Backups []BackupReference `json:"backups,omitempty"`

	// moreBackups is how many there are beside those in backups.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MoreBackups int64 `json:"moreBackups,omitempty"`
}

// KEKState is whether something still needs a key of a KMS.
//
// +kubebuilder:validation:Enum=InUse;NeededByBackups;MayBeDisabled;Unknown
type KEKState string

// Whether something still needs a key of a KMS.
const (
	KEKInUse           KEKState = "InUse"
	KEKNeededByBackups KEKState = "NeededByBackups"
	KEKMayBeDisabled   KEKState = "MayBeDisabled"
	KEKUnknown         KEKState = "Unknown"
)

// BackupReference is a backup of etcd.
type BackupReference struct {
	// name is what it is called where it was told of.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// takenTime is when it was taken, where that is known.
	//
	// +optional
	TakenTime *metav1.Time `json:"takenTime,omitempty"`
}
