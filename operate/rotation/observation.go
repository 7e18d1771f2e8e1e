package rotation

import (
	"slices"
	"strings"
	"time"
)

// Observation is what was seen of the world. All times in it are of one clock,
// the one that [Next] is called with: whoever reads the clock of another machine
// corrects it first, for example by the Date header of its answer.
type Observation struct {
	// Instances are the apiservers by name: those that are expected, of which one that
	// never answered may be missing, and every other one that is known to exist, with
	// a Problem that tells how. One that nobody expects is in the way of everything:
	// nobody knows what it writes with.
	Instances map[string]Instance `json:"instances,omitempty"`
	// Shown is what was last shown of the apiservers, by name. One of which nothing
	// was shown is missing.
	Shown map[string]Shown `json:"shown,omitempty"`
	// Migrations is how the work that [Migrate] asked for goes, as far as the
	// one who does it knows. After a crash it may be empty.
	Migrations []Progress `json:"migrations,omitempty"`
	// Audit is the latest complete look at what is stored; nil if there is none.
	Audit *Audit `json:"audit,omitempty"`
}

// Instance is what one apiserver last told of itself.
type Instance struct {
	// CheckedAt is when it last answered, zero if it never did.
	CheckedAt time.Time `json:"checkedAt,omitzero"`
	// Problem is why the latest attempt to ask it failed, empty if it did not.
	Problem string `json:"problem,omitempty"`
	// Process names the process that answered, if it has a name. Two instances
	// with the same one are one.
	Process string `json:"process,omitempty"`
	// Server is "sha256:" and the hash in hex of the apiserver's ID, which it has
	// in its metrics as apiserver_id_hash; empty if it tells none. Apiservers on
	// hosts of one name have the same.
	Server string `json:"server,omitempty"`
	// ConfigHash is "sha256:" and the hash in hex of the configuration file that
	// is in effect there, which may not be the one on its disk.
	ConfigHash string `json:"configHash,omitempty"`
	// FileHash is that of the file on its disk, which it has after its next start; empty
	// if it could not be read. Only a [Move] goes by it.
	FileHash string `json:"fileHash,omitempty"`
	// FileProblem is why it could not.
	FileProblem string `json:"fileProblem,omitempty"`
	// Fixed is that it does not follow its file, as it tells: nothing but its next start
	// has the file in effect. Unready is why it is not ready, if it was asked.
	Fixed   bool   `json:"fixed,omitempty"`
	Unready string `json:"unready,omitempty"`
	// ConfigSince is since when it is in effect, if that is told, for people. Pending is
	// why the file as it is now is not: nothing is at its end before it is.
	ConfigSince time.Time `json:"configSince,omitzero"`
	Pending     string    `json:"pending,omitempty"`
	// Providers are its KMS providers by name. Complete tells that it has no others:
	// then that there are none is a fact too.
	Providers map[string]Provider `json:"providers,omitempty"`
	Complete  bool                `json:"complete,omitempty"`
}

// Identities tell instances from those that they were, by name: one with another
// process, or another configuration in effect, has another.
func Identities(instances map[string]Instance) map[string]string {
	all := map[string]string{}
	for name, i := range instances {
		all[name] = i.Process + " " + i.ConfigHash
	}
	return all
}

// Provider is what an apiserver told of one of its KMS providers.
type Provider struct {
	// Healthy tells that nothing is known to be wrong with the plugin; Problem
	// says what is.
	Healthy bool   `json:"healthy"`
	Problem string `json:"problem,omitempty"`
	// Silent is a plugin that has named no key_id for three minutes, of which the
	// apiserver does not complain, and which loaded another configuration since: it has
	// the provider in that one no longer. Only of an apiserver that does not tell which providers it has.
	Silent bool `json:"silent,omitempty"`
	// KeyID is the hash of the key_id that the plugin named last, whether it is
	// written with or only read with. Empty if it named none yet.
	KeyID string `json:"keyID,omitempty"`
	// WroteKeyID is the hash of the key_id that the apiserver's latest write was
	// under, and WroteAt when that was. Both are empty if it wrote nothing since
	// it started. This is what it did, where KeyID is what it was told.
	WroteKeyID string    `json:"wroteKeyID,omitempty"`
	WroteAt    time.Time `json:"wroteAt,omitzero"`
	// DEK is the hash of the DEK of that write as it is stored, empty if the apiserver
	// tells none.
	DEK string `json:"dek,omitempty"`
	// Told is more of it, for people.
	Told Told `json:"told,omitzero"`
}

// Told is what an apiserver tells of a provider besides, by which nothing is decided.
// One that is not of this project tells hardly any of it.
type Told struct {
	// Role is what it is used for, empty if that is not told.
	Role Role `json:"role,omitempty"`
	// WritesFor are the resources that are written with it, as the configuration has
	// them.
	WritesFor []string `json:"writesFor,omitempty"`
	// Message is more of its Problem, and Since when that began.
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// WritesUntil is until when a provider with [RoleWrites] is written with if its
	// plugin is not found well again; zero if nothing can be written.
	WritesUntil time.Time `json:"writesUntil,omitzero"`
	// LastWrite is when a value was last written with it, zero if none was or that is
	// not told. Unlike WroteAt it is never taken to be later than it was.
	LastWrite time.Time `json:"lastWrite,omitzero"`
	// DEKs is how many DEKs are in memory, nil if that is not told.
	DEKs *int `json:"deks,omitempty"`
}

// Role is what an apiserver uses a provider for.
type Role string

// The roles.
const (
	RoleWrites Role = "writes" // and reads
	RoleReads  Role = "reads"
)

// Shown is what objects proved of an apiserver: they were written through it, read
// through every other one, and found in etcd with the version that the write made.
type Shown struct {
	// At is when the write began, and Identities are what the [Identities] of all were
	// just before: of the one that wrote and of those that read. It says nothing of
	// others.
	At         time.Time         `json:"at"`
	Identities map[string]string `json:"identities,omitempty"`
	// KeyIDs are the hashes of the key_ids that the objects were found under in
	// etcd, by the name of the provider; empty ones of KMS v1, which stores none.
	KeyIDs map[string]string `json:"keyIDs,omitempty"`
	// Resources are those of the objects, named as in a [Count], and Etcds the ids of
	// the etcd clusters in which they were found. A count has to have all of them.
	Resources []string `json:"resources,omitempty"`
	Etcds     []uint64 `json:"etcds,omitempty"`
	// Already are the providers of which all objects were stored anew before, so that
	// the instance was shown to leave one as it is, and wrote none.
	Already []string `json:"already,omitempty"`
	// Nothing are the providers asked for of which there was no object to write, nor
	// one that could be made. That is no proof where a count finds one.
	Nothing []string `json:"nothing,omitempty"`
}

// Phase is how far a migration of one resource is.
type Phase string

// The phases of a migration. One that has not begun has no [Progress].
const (
	Running   Phase = "running"
	Succeeded Phase = "succeeded"
	Failed    Phase = "failed"
)

// Progress is how a migration of one resource goes.
type Progress struct {
	// Goal is that of the [Migrate] which asked for it. What it was for is told
	// from here, never from what is wanted by now.
	Goal     Goal   `json:"goal"`
	Resource string `json:"resource"`
	Phase    Phase  `json:"phase"`
	// EndedAt is set unless the phase is [Running], Problem if it [Failed].
	EndedAt time.Time `json:"endedAt,omitzero"`
	Problem string    `json:"problem,omitempty"`
}

// Audit is a count of everything stored of the resources of a plan, and of what
// else is stored with its providers, as far as that can be: of a resource that
// no apiserver serves, or that is newer than the plan.
type Audit struct {
	// StartedAt is when the first object was looked at.
	StartedAt time.Time `json:"startedAt"`
	// Counts add up to all objects. What is stored in any other way than by a
	// provider of the rotation or a KMS is counted under an empty Provider, also what
	// cannot be recognised.
	Counts []Count `json:"counts,omitempty"`
	// Etcds are the clusters that were counted, each as a whole.
	Etcds []Etcd `json:"etcds,omitempty"`
}

// Etcd is an etcd cluster at a moment.
type Etcd struct {
	// Cluster is its id, and Revision the one that was looked at.
	Cluster  uint64 `json:"cluster"`
	Revision int64  `json:"revision"`
}

// Plain is the provider that encrypts nothing.
const Plain = "identity:"

// localKinds are those of the providers that are no KMS, of an EncryptionConfiguration.
var localKinds = []string{"aescbc", "aesgcm", "secretbox", "identity"}

// Local parts the name of a provider that is no KMS, as in aescbc:key1. The names of KMS
// v2 have no ':', and those of v1 begin otherwise.
func Local(provider string) (kind, key string, ok bool) {
	kind, key, ok = strings.Cut(provider, ":")
	return kind, key, ok && slices.Contains(localKinds, kind)
}

// IsLocal reports whether a provider is no KMS, by its name.
func IsLocal(provider string) bool {
	_, _, local := Local(provider)
	return local
}

// Unreadable is the provider of a [Count] of what a KMS provider may have stored that
// nobody can read: which, and under what key, is not known.
const Unreadable = "(unreadable)"

// Count is how many objects are stored alike.
type Count struct {
	Resource string `json:"resource"`
	// Provider is the name of a KMS provider, or the kind and the name of a key in the
	// file, as in aescbc:key1, or [Plain].
	Provider string `json:"provider,omitempty"`
	// KeyID is the hash of the key_id. It is empty of KMS v1, which stores none.
	KeyID   string `json:"keyID,omitempty"`
	Objects int64  `json:"objects"`
	// Canaries are those of the objects that were written for the rotation alone, and
	// are gone when it is over. A [Done] leaves them out.
	Canaries int64 `json:"canaries,omitempty"`
}
