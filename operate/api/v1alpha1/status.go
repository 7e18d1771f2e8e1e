package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// EncryptionAtRestStatus is how far a cluster is, and what was seen. Its lists have bounds
// with which the object stays below the 1.5 MiB that etcd takes. It holds no credential, and
// a key_id only by its hash.
type EncryptionAtRestStatus struct {
	// observedGeneration is the metadata.generation that the controller has decided on.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions tell what is so, why, since when and what to do.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, c.message.size() <= 1024)",message="a condition's message must have at most 1024 characters"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// keys are those in use, and why each one is.
	//
	// +optional
	// +listType=map
	// +listMapKey=keyID
	// +kubebuilder:validation:MaxItems=16
	Keys []KeyStatus `json:"keys,omitempty"`

	// nodes have an entry for each node and key, which the node writes, under a field owner of
	// its own: of 100 nodes, four keys each. A report of trouble is as complete as one of health.
	//
	// +optional
	// +listType=map
	// +listMapKey=nodeName
	// +listMapKey=keyID
	// +kubebuilder:validation:MaxItems=400
	Nodes []NodeReport `json:"nodes,omitempty"`

	// preflight is how the nodes tried what is not in use yet.
	//
	// +optional
	Preflight *PreflightStatus `json:"preflight,omitempty"`

	// migration is how far what is stored is under the key to write with.
	//
	// +optional
	Migration *MigrationStatus `json:"migration,omitempty"`

	// keks are the keys of a KMS that were in use, and whether something still needs them.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	KEKs []KEKStatus `json:"keks,omitempty"`
}

// KeyStatus is one key, and why it is in use.
type KeyStatus struct {
	// keyID numbers the key, and the socket of its plugin, for the life of the cluster.
	//
	// +required
	KeyID KeyID `json:"keyID,omitempty"`

	// type is by what it encrypts.
	//
	// +required
	Type EncryptionType `json:"type,omitempty"`

	// role is what it is in use for: Write is what is written with, Read only what is read with.
	//
	// +required
	Role KeyRole `json:"role,omitempty"`

	// reason is why it is in use, in one line: why it was made, or what still needs it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`

	// kek is where its KMS has it, in words of that KMS.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	KEK string `json:"kek,omitempty"`

	// remoteKeyID is the hash of the key_id that everything is migrated to, or has been.
	//
	// +optional
	RemoteKeyID Hash `json:"remoteKeyID,omitempty"`

	// createdTime is when it was made.
	//
	// +optional
	CreatedTime *metav1.Time `json:"createdTime,omitempty"`

	// migratedTime is when everything was proven to be stored under it.
	//
	// +optional
	MigratedTime *metav1.Time `json:"migratedTime,omitempty"`
}

// KeyRole is what a key is in use for.
//
// +kubebuilder:validation:Enum=Write;Read
type KeyRole string

// The roles of a key.
const (
	WriteKey KeyRole = "Write"
	ReadKey  KeyRole = "Read"
)

// NodeReport is what a node tells of one key.
type NodeReport struct {
	// nodeName is that of the node.
	//
	// +required
	NodeName NodeName `json:"nodeName,omitempty"`

	// keyID is that of the key.
	//
	// +required
	KeyID KeyID `json:"keyID,omitempty"`

	// status is what the plugin of the key answered: Healthy; Unhealthy, where it said that it is
	// not; Error, where it gave no answer.
	//
	// +required
	Status NodeReportStatus `json:"status,omitempty"`

	// lastCheckedTime is when it was asked. What is older than 120 s tells nothing of now.
	//
	// +required
	LastCheckedTime *metav1.Time `json:"lastCheckedTime,omitempty"`

	// remoteKeyID is the hash of the key_id that the plugin named, where it named one.
	//
	// +optional
	RemoteKeyID Hash `json:"remoteKeyID,omitempty"`

	// revision is that of the bundle by which the node runs.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Revision int64 `json:"revision,omitempty"`

	// detail is what is wrong, in one line.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Detail string `json:"detail,omitempty"`
}

// NodeReportStatus is what a plugin answered.
//
// +kubebuilder:validation:Enum=Healthy;Unhealthy;Error
type NodeReportStatus string

// What a plugin answered.
const (
	ReportHealthy   NodeReportStatus = "Healthy"
	ReportUnhealthy NodeReportStatus = "Unhealthy"
	ReportError     NodeReportStatus = "Error"
)

// KeyID numbers a key for the life of a cluster, from 1 on, in digits: as a number, it could
// have more than JSON is sure to keep.
//
// +kubebuilder:validation:MaxLength=20
// +kubebuilder:validation:Pattern=`^[1-9][0-9]*$`
type KeyID string

// Hash is a SHA-256, as sha256: and 64 digits in hex. That of a key_id is the one which the
// metrics of an apiserver have.
//
// +kubebuilder:validation:MaxLength=71
// +kubebuilder:validation:Pattern=`^sha256:[a-f0-9]{64}$`
type Hash string
