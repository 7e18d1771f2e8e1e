package keys

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// Mode is how values are encrypted.
type Mode string

// The modes, as in an EncryptionConfiguration, and KMS for a plugin.
const (
	Identity  Mode = "identity"
	AESCBC    Mode = "aescbc"
	AESGCM    Mode = "aesgcm"
	Secretbox Mode = "secretbox"
	KMS       Mode = "KMS"
)

func (m Mode) local() bool { return m == AESCBC || m == AESGCM || m == Secretbox }

// KeySize is the length of the key of a local mode, in bytes.
const KeySize = 32

// Plugin is how the plugin of a key is run. It holds credentials.
type Plugin struct {
	redact.As
	// Settings are the bytes of [bundle.Settings], and Parts the files that they need, and
	// no others.
	Settings []byte
	Parts    map[bundle.Part][]byte
	// Timeout is that of the apiserver's calls; 0 is [DefaultTimeout].
	Timeout time.Duration
}

// DefaultTimeout is that of a call of an apiserver to a plugin.
const DefaultTimeout = 10 * time.Second

// Record is one key, as it is kept for as long as anything may need it: what it is, why it
// was made, and how far the way to it is. It is a value; [Next] changes none that it is
// given. It is what [Encode] makes a Secret of.
type Record struct {
	redact.As
	ID   bundle.KeyID
	Mode Mode
	// From is the key that was in use when it was made, and has to be there as long as it is
	// on its way; 0 is none.
	From bundle.KeyID
	// Reason is why it was made, when, and External the reason that people gave then.
	Reason    Reason
	CreatedAt time.Time
	External  string
	// Key is of a local mode, and Plugin of KMS. Identity has neither: it is a key like any
	// other but that nothing is encrypted with it.
	Key    []byte
	Plugin *Plugin
	// KeyIDHash names the key_id that the preflight saw, as [rotation.KeyIDHash] does.
	KeyIDHash string
	// Resources are those that it is for, sorted, and Strict is that identity is not read
	// with beside it once nothing is stored as plain text.
	Resources []string
	Strict    bool
	// State is what is under way with it: the move to it, then that of Change, or the
	// rotation of its plugin's key_id; nil for nothing. How it goes is decided there.
	State  *rotation.State
	Change *Change
	// Round is that of the latest migration before State, so that no two are ever taken for
	// each other.
	Round int
	// SettledAt is when the move to it was proven to be at its end: from then on it is what
	// is written with, and nothing needs an older one. AbandonedAt is when it was proven
	// that it was taken back before anything was written with it.
	SettledAt   time.Time
	AbandonedAt time.Time
	// Migrated names the key_id of the latest migration that came to its end, empty if what
	// is stored was not seen to be under one.
	Migrated string
	// Left is what the move to it left behind.
	Left *Left
}

// Change is of the resources of a key that is in use.
type Change struct {
	// Resources are all that it will be for, and Tighten is that it becomes strict.
	Resources []string `json:"resources"`
	Tighten   bool     `json:"tighten,omitempty"`
}

// Left is a key that nothing in these etcds needs any more, which a count has proved.
type Left struct {
	ID bundle.KeyID `json:"id"`
	// KEK tells people which one it is, and KeyIDs are the hashes of its key_ids that may be
	// disabled once no backup of etcd needs them.
	KEK    string   `json:"kek,omitempty"`
	KeyIDs []string `json:"keyIDs,omitempty"`
	// Etcds are the clusters that were counted.
	Etcds []rotation.Etcd `json:"etcds,omitempty"`
}

func (r *Record) settled() bool   { return !r.SettledAt.IsZero() }
func (r *Record) abandoned() bool { return !r.AbandonedAt.IsZero() }
func (r *Record) moving() bool    { return !r.settled() && !r.abandoned() }

// encrypts reports whether anything is encrypted with it.
func (r *Record) encrypts() bool { return r != nil && r.Mode != Identity }

// id is 0 for none.
func (r *Record) id() bundle.KeyID {
	if r == nil {
		return 0
	}
	return r.ID
}

// begun reports whether what is under way may have been written with.
func (r *Record) begun() bool {
	return r.State != nil && r.State.Move != nil && r.State.Move.Back == nil && r.State.Move.Begun()
}

// validate says what is wrong with a record, if anything is.
func (r *Record) validate() error {
	var err error
	switch {
	case r.ID == 0:
		err = errors.New("it has no keyID")
	case r.Mode.local() != (r.Key != nil) || r.Mode.local() && (len(r.Key) != KeySize || bytes.Equal(r.Key, make([]byte, KeySize))):
		err = fmt.Errorf("a key of %d bytes is of the modes aescbc, aesgcm and secretbox, and of no other", KeySize)
	case r.Mode != Identity && r.Mode != KMS && !r.Mode.local():
		err = fmt.Errorf("mode %.40q is not known", r.Mode)
	case (r.Mode == KMS) != (r.Plugin != nil):
		err = errors.New("a plugin is of mode KMS, and of no other")
	case r.From >= r.ID:
		err = fmt.Errorf("it came after key %s", r.From)
	case r.CreatedAt.IsZero() || r.Reason == "":
		err = errors.New("it is not said why and when it was made")
	case r.settled() && r.abandoned():
		err = errors.New("it is in use and was abandoned")
	case r.moving() && (r.State == nil || r.State.Move == nil):
		err = errors.New("it is not in use, and there is no move to it")
	case r.Change != nil && (!r.settled() || !r.encrypts() || r.State == nil || r.State.Move == nil || resourcesOf(r.Change.Resources) != nil):
		err = errors.New("its resources change without a move")
	case r.settled() && r.Change == nil && r.State != nil && (r.State.OnePlugin == nil || r.Mode != KMS), r.abandoned() && r.State != nil:
		err = errors.New("it has the state of a move that is over")
	case r.Round < 0:
		err = errors.New("its round is negative")
	case r.KeyIDHash != "" && !hashed.IsName(r.KeyIDHash), r.Migrated != "" && !hashed.IsName(r.Migrated):
		err = errors.New("a key_id is named by its hash, and this is none")
	default:
		err = resourcesOf(r.Resources)
	}
	if err == nil && r.State != nil {
		err = r.State.Validate()
	}
	if err != nil {
		return fmt.Errorf("key %s cannot be used: %w", r.ID, err)
	}
	return nil
}

// whole says what is wrong with a record or its plugin, if anything is.
func (r *Record) whole() error {
	err := r.validate()
	if err == nil && r.Mode == KMS {
		if _, err = r.Plugin.at(r.ID); err != nil {
			err = fmt.Errorf("key %s cannot be used: %w", r.ID, err)
		}
	}
	return err
}

// plainResource is the name of a resource as in secrets or deployments.apps. Wildcards
// cannot be counted.
func plainResource(name string) bool {
	return name != "" && len(name) <= 253 && !slices.ContainsFunc([]byte(name), func(c byte) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '-'
	})
}

func resourcesOf(names []string) error {
	if len(names) == 0 || len(names) > maxResources {
		return fmt.Errorf("it is for %d resources: name 1 to %d", len(names), maxResources)
	}
	for i, name := range names {
		if !plainResource(name) || i > 0 && names[i-1] >= name {
			return fmt.Errorf("resource %.80q: each is named once, in their order, as in secrets or deployments.apps", name)
		}
	}
	return nil
}

const maxResources = 100

// at is the plugin as a node has it.
func (p *Plugin) at(id bundle.KeyID) (*bundle.Plugin, error) {
	r := &Record{ID: id, Mode: KMS, Plugin: p}
	b, err := bundle.New(r.atRest([]string{"secrets"}, true).Draft(1, nil))
	if err != nil {
		return nil, err
	}
	return b.Plugin(id), nil
}

func (p *Plugin) clone() *Plugin {
	return &Plugin{As: "plugin", Settings: bytes.Clone(p.Settings), Parts: cloneParts(p.Parts), Timeout: p.Timeout}
}

func cloneParts(parts map[bundle.Part][]byte) map[bundle.Part][]byte {
	all := map[bundle.Part][]byte{}
	for part, content := range parts {
		all[part] = bytes.Clone(content)
	}
	return all
}

func (p *Plugin) equal(q *Plugin) bool {
	return bytes.Equal(p.Settings, q.Settings) && maps.EqualFunc(p.Parts, q.Parts, bytes.Equal) && p.timeout() == q.timeout()
}

func (p *Plugin) timeout() time.Duration { return cmp.Or(p.Timeout, DefaultTimeout) }

// ring is all records, the oldest first.
type ring []*Record

// ringOf sorts records, and refuses those that cannot all be true.
func ringOf(records []Record) (ring, error) {
	var all ring
	var errs []error
	for i := range records {
		r := records[i]
		errs = append(errs, r.validate())
		all = append(all, &r)
	}
	slices.SortFunc(all, func(a, b *Record) int { return cmp.Compare(a.ID, b.ID) })
	if err := errors.Join(errs...); err != nil {
		return all, err
	}
	w, m := all.writer(), all.moving()
	for i, r := range all {
		switch {
		case i > 0 && all[i-1].ID == r.ID:
			return all, fmt.Errorf("there are two keys %s", r.ID)
		case r.moving() && r != m:
			return all, fmt.Errorf("keys %s and %s are both on their way: what is written with is not known", r.ID, m.ID)
		case r.moving() && r.From != w.id():
			return all, fmt.Errorf("key %s is on its way from key %s, and key %s is the one in use", r.ID, r.From, w.id())
		}
	}
	return all, nil
}

// writer is what is written with while nothing is under way; nil is plain text.
func (k ring) writer() *Record { return k.newest((*Record).settled) }

// moving is the key that is on its way into use, or out of it before its time.
func (k ring) moving() *Record { return k.newest((*Record).moving) }

func (k ring) newest(is func(*Record) bool) *Record {
	for _, r := range slices.Backward(k) {
		if is(r) {
			return r
		}
	}
	return nil
}

func (k ring) find(id bundle.KeyID) *Record {
	return k.newest(func(r *Record) bool { return r.ID == id })
}

// unused are those that no configuration has, the newest first.
func (k ring) unused() (all []*Record) {
	w := k.writer()
	for _, r := range slices.Backward(k) {
		if r.abandoned() || w != nil && r.ID < w.ID {
			all = append(all, r)
		}
	}
	return all
}
