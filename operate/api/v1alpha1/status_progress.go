package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// +kubebuilder:validation:MaxItems=100
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
	// +kubebuilder:validation:MaxLength=256
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
