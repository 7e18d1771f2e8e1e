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
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// keys are those in use, and why each one is.
	//
	// +optional
	// +listType=map
	// +listMapKey=keyID
	// +kubebuilder:validation:MaxItems=16
	Keys []KeyStatus `json:"keys,omitempty"`

	// nodes have an entry for each node and key, which the node writes, under a field owner of
	// its own. A report of trouble is as complete as one of health.
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
	Healthy   NodeReportStatus = "Healthy"
	Unhealthy NodeReportStatus = "Unhealthy"
	Error     NodeReportStatus = "Error"
)

// PreflightStatus is how the nodes tried what is not in use yet.
type PreflightStatus struct {
	// observedConfigHash names what is to be tried: the settings with the content of the Secrets
	// and ConfigMaps that they name, under a key, so that nobody can try which credential it is.
	//
	// +optional
	ObservedConfigHash Hash `json:"observedConfigHash,omitempty"`

	// result is how the latest try ended. It says nothing of another hash than its own.
	//
	// +optional
	Result *PreflightResult `json:"result,omitempty"`

	// nodes are how it ended on each node, which the node writes.
	//
	// +optional
	// +listType=map
	// +listMapKey=nodeName
	// +kubebuilder:validation:MaxItems=200
	Nodes []NodePreflight `json:"nodes,omitempty"`
}

// PreflightResult is how a try ended.
type PreflightResult struct {
	// status is Succeeded; Failed, which needs another configuration; or Retrying, where the
	// reason may pass.
	//
	// +required
	Status PreflightResultStatus `json:"status,omitempty"`

	// configHash names what was tried.
	//
	// +required
	ConfigHash Hash `json:"configHash,omitempty"`

	// remoteKeyID is the hash of the key_id that the plugin named, where it came so far.
	//
	// +optional
	RemoteKeyID Hash `json:"remoteKeyID,omitempty"`

	// lastTriedTime is when it ended.
	//
	// +optional
	LastTriedTime *metav1.Time `json:"lastTriedTime,omitempty"`

	// detail is why it did not succeed, in one line.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Detail string `json:"detail,omitempty"`
}

// PreflightResultStatus is how a try ended.
//
// +kubebuilder:validation:Enum=Succeeded;Failed;Retrying
type PreflightResultStatus string

// How a try ended.
const (
	PreflightSucceeded PreflightResultStatus = "Succeeded"
	PreflightFailed    PreflightResultStatus = "Failed"
	PreflightRetrying  PreflightResultStatus = "Retrying"
)

// NodePreflight is how a try ended on one node.
type NodePreflight struct {
	// nodeName is that of the node.
	//
	// +required
	NodeName NodeName `json:"nodeName,omitempty"`

	PreflightResult `json:",inline"`

	// beside is what was seen of the plugin beside the one that is in use.
	//
	// +optional
	Beside *BesideResult `json:"beside,omitempty"`
}

// BesideResult is what was seen of two plugins, that in use and that tried: whether they have
// one key.
type BesideResult struct {
	// remoteKeyID is the hash of the key_id that the one in use named.
	//
	// +optional
	RemoteKeyID Hash `json:"remoteKeyID,omitempty"`

	// opened tells whether the one tried gave back what the one in use had wrapped. Without it,
	// that was not seen.
	//
	// +optional
	Opened *bool `json:"opened,omitempty"`

	// openedBack tells whether the one in use gave back what the one tried had wrapped. Without
	// it, that was not seen.
	//
	// +optional
	OpenedBack *bool `json:"openedBack,omitempty"`
}

// MigrationStatus is how far what is stored is under the key to write with.
type MigrationStatus struct {
	// keyID is that of the key to write with.
	//
	// +required
	KeyID KeyID `json:"keyID,omitempty"`

	// remoteKeyID is the hash of the key_id that the migration was begun for.
	//
	// +optional
	RemoteKeyID Hash `json:"remoteKeyID,omitempty"`

	// startedTime is when it was begun.
	//
	// +optional
	StartedTime *metav1.Time `json:"startedTime,omitempty"`

	// finishedTime is when every etcd was proven to have nothing under another key.
	//
	// +optional
	FinishedTime *metav1.Time `json:"finishedTime,omitempty"`

	// resources are how far each one is.
	//
	// +optional
	// +listType=map
	// +listMapKey=resource
	// +kubebuilder:validation:MaxItems=64
	Resources []ResourceMigration `json:"resources,omitempty"`
}

// ResourceMigration is how far one resource is.
type ResourceMigration struct {
	// resource is RESOURCE or RESOURCE.GROUP.
	//
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Resource string `json:"resource,omitempty"`

	// state is Pending, Migrating, Migrated once it was proven, or Failed, which is tried again.
	//
	// +required
	State MigrationState `json:"state,omitempty"`

	// objects are how many there were when it was begun.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Objects *int64 `json:"objects,omitempty"`

	// written are how many of them were stored again so far.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Written *int64 `json:"written,omitempty"`

	// remaining are how many were counted in etcd under another key, by the latest count.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Remaining *int64 `json:"remaining,omitempty"`

	// detail is what it waits for, or why it failed, in one line.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Detail string `json:"detail,omitempty"`
}

// MigrationState is how far one resource is.
//
// +kubebuilder:validation:Enum=Pending;Migrating;Migrated;Failed
type MigrationState string

// How far one resource is.
const (
	MigrationPending MigrationState = "Pending"
	MigrationRunning MigrationState = "Migrating"
	MigrationDone    MigrationState = "Migrated"
	MigrationFailed  MigrationState = "Failed"
)

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
	// +kubebuilder:validation:MaxItems=32
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
