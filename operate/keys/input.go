package keys

import (
	"time"

	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Input is all that a decision is made of. It holds keys and credentials.
type Input struct {
	redact.As
	Desired Desired
	// Records are all that there are, and Refused why what was meant to be one is none: while
	// there is such a one nothing is decided, as nobody knows what it stands for.
	Records []Record
	Refused []error
	// Expected are the apiservers that there are to be, by what the cluster says of its
	// nodes, never by which of them reported.
	Expected []string
	// Observed is what was seen of them. The hash of an instance's file is that of the
	// configuration which its node has, or is to have as it was last written.
	Observed rotation.Observation
	// Present are the keys in any configuration that was found: written for a node, kept by
	// one, or told of by an apiserver. Kept are the records of those that could be read from
	// there, to put back one that is lost.
	Present []bundle.KeyID
	Kept    []Record
	// Verdicts are those of preflights, by the apiserver whose node they were made on.
	Verdicts map[string]Verdict
	// Conditions are those of before.
	Conditions []Condition
	// Resumed is that nobody looked for a while: of who began, and who was cut off for longer
	// than the MaxAge.
	Resumed bool
	// Random are 32 bytes that were never used, for a key. Secret are at least 16, kept for
	// the life of the cluster, for hashes of preflights.
	Random []byte
	Secret []byte
	Times  Times
}

// Times are those of a [rotation.Plan]. The zero value of each is the default there.
type Times struct{ Hold, MaxAge, RetryAfter time.Duration }

// Output is what ought to be so. First the records are stored, then the rest is carried
// out; if one cannot be stored, as another wrote it meanwhile, nothing of the rest may be.
type Output struct {
	Records []RecordChange
	// Configs are what the apiservers are to have. One that is not named keeps what it has,
	// whatever that is.
	Configs map[string]Config
	// Preflight is the one that is wanted; nil for none.
	Preflight *Preflight
	// Actions are what the rotation asks for besides: canaries, a migration, a count. Waiting
	// is what it waits for.
	Actions []rotation.Action
	Waiting []rotation.Waiting
	// MayGo are the keys and key_ids that nothing in etcd needs.
	MayGo      []Left
	Conditions []Condition
}

// RecordChange is of one record: to create, replace or delete it.
type RecordChange struct {
	Verb   Verb
	Record Record
	Reason Reason
	// Detail is why, in one line.
	Detail string
}

// Verb is what happens to a record.
type Verb string

// The verbs. Delete takes away the Secret and what protects it.
const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
)

// Reason is why a record changes, in a word.
type Reason string

// The reasons.
const (
	// FirstKey, ModeChanged, ProviderChanged, PluginChanged, Requested and Aged are those of
	// a new key.
	FirstKey        Reason = "key-does-not-exist"
	ModeChanged     Reason = "encryption-mode-changed"
	ProviderChanged Reason = "kms-provider-changed"
	PluginChanged   Reason = "kms-key-changed"
	Requested       Reason = "rotation-requested"
	Aged            Reason = "key-aged"
	// UpdatedInPlace is of another way to the same KEK, and ResourcesChanged of resources or
	// strictness.
	UpdatedInPlace   Reason = "updated-in-place"
	ResourcesChanged Reason = "resources-changed"
	// Moved is of how far the way to a key is, Settled of its end, TakenBack of a mind that
	// was changed and Abandoned of the end of that.
	Moved     Reason = "moved"
	Settled   Reason = "settled"
	TakenBack Reason = "taken-back"
	Abandoned Reason = "abandoned"
	// PutBack is of a record that was lost, and Pruned of one that is needed no more.
	PutBack Reason = "put-back"
	Pruned  Reason = "pruned"
)
