package keyfile

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin"
)

// A key is one KEK with its name.
type key struct {
	id       string // 32 hexadecimal digits, drawn on their own: they say nothing of the KEK
	formerly string // its key_id in a file of format 1, or empty
	created  time.Time
	kek      kek
}

const idSize = 16 // bytes

func newKey(created time.Time, random io.Reader) (key, error) {
	var id [idSize]byte
	if _, err := io.ReadFull(random, id[:]); err != nil {
		return key{}, fmt.Errorf("randomness for a new id: %w", err)
	}
	secret, err := randomKEK(random)
	return key{id: hex.EncodeToString(id[:]), created: created.UTC().Truncate(time.Millisecond), kek: secret}, err
}

// checkID holds an id from a file against what newKey makes.
func checkID(id string) error {
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != idSize || id != strings.ToLower(id) {
		return fmt.Errorf("id %.64q is not one of 32 hexadecimal digits", id)
	}
	return nil
}

// positionOf is the place in a file of format 1 that a key_id of it tells, and its other half.
func positionOf(keyID string) (position int, id string, err error) {
	digits, id, _ := strings.Cut(keyID, ".")
	position, err = strconv.Atoi(digits)
	if err != nil || position < 1 || position > maxVersions || strconv.Itoa(position) != digits || checkID(id) != nil {
		return 0, "", fmt.Errorf("key_id %.64q is not a version, a dot and 32 hexadecimal digits", keyID)
	}
	return position, id, nil
}

func (k key) version() kmsplugin.Version {
	lineage, _ := hex.DecodeString(k.id) // was checked
	v := kmsplugin.Version{Kind: "keyfile", Lineage: lineage, Label: k.id, Created: k.created}
	if k.formerly != "" {
		v.Formerly = []string{k.formerly}
	}
	return v
}

func (k key) equal(other key) bool {
	return k.id == other.id && k.formerly == other.formerly && k.created.Equal(other.created) && k.kek.equal(other.kek)
}

// older orders keys by age, and those of one age in the same way on every node.
func older(a, b key) int {
	return cmp.Or(a.created.Compare(b.created), strings.Compare(a.id, b.id))
}

// A keyring is all keys of a file, the oldest first. It is read-only.
type keyring struct {
	keys      []key
	byID      map[string]key
	writes    string   // id of the one that wraps
	destroyed []string // ids of those that were, in order, so that no other file brings them back
	format    int      // of the file that it was read from, or 0
}

func newKeyring(writes string, keys ...key) *keyring {
	r := &keyring{keys: slices.SortedFunc(slices.Values(keys), older), byID: make(map[string]key, len(keys)), writes: writes}
	for _, k := range keys {
		r.byID[k.id] = k
	}
	return r
}

// writing is the same with another key that wraps.
func (r *keyring) writing(id string) *keyring {
	next := *r
	next.writes, next.format = id, 0
	return &next
}

// hasAll is an error if a key of other is not here as it is there, unless it was destroyed.
func (r *keyring) hasAll(other *keyring) error {
	for _, k := range other.keys {
		switch mine, ok := r.byID[k.id]; {
		case !ok && r.hasDestroyed(k.id):
		case !ok:
			return fmt.Errorf("it no longer has version %s", k.id)
		case !mine.equal(k):
			return fmt.Errorf("it has something else as version %s", k.id)
		}
	}
	return nil
}

// merged has the keys of both, but for those that were destroyed in either. The writer created
// later writes. It is the same whichever is merged into which.
func (r *keyring) merged(other *keyring) (*keyring, error) {
	if err := errors.Join(r.spares(other), other.spares(r)); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Clone(r.keys), func(k key) bool { return other.hasDestroyed(k.id) })
	for _, k := range other.keys {
		switch mine, ok := r.byID[k.id]; {
		case !ok && r.hasDestroyed(k.id):
		case !ok:
			all = append(all, k)
		case !mine.equal(k):
			return nil, fmt.Errorf("%w: version %s is not the same in both files: one of them was not made by this program", ErrDamaged, k.id)
		}
	}
	writer := slices.MaxFunc([]key{r.byID[r.writes], other.byID[other.writes]}, older)
	next := newKeyring(writer.id, all...)
	next.destroyed = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.destroyed, other.destroyed))))
	return next, nil
}

// with has one key more, which is younger than all others whatever the clock says.
func (r *keyring) with(k key) *keyring {
	if newest := r.keys[len(r.keys)-1].created; !k.created.After(newest) {
		k.created = newest.Add(time.Millisecond)
	}
	next := newKeyring(r.writes, append(slices.Clone(r.keys), k)...)
	next.destroyed = r.destroyed
	return next
}

// find is the key whose id or key_id begins so; the newest if nothing is given.
func (r *keyring) find(begins string) (key, error) {
	if begins == "" {
		return r.keys[len(r.keys)-1], nil
	}
	var found []key
	for _, k := range r.keys {
		if strings.HasPrefix(k.id, begins) || strings.HasPrefix(k.version().KeyID(), begins) {
			found = append(found, k)
		}
	}
	switch len(found) {
	case 0:
		if r.hasDestroyed(begins) {
			return key{}, fmt.Errorf("%w: %s was destroyed", errNoVersion, begins)
		}
		return key{}, fmt.Errorf("%w: %.64q is the id of none of its %d versions: list them, or merge the file that has it", errNoVersion, begins, len(r.keys))
	case 1:
		return found[0], nil
	}
	return key{}, fmt.Errorf("%w: %.64q is the beginning of %d ids: give more of it", errNoVersion, begins, len(found))
}

var errNoVersion = errors.New("no version")

func (r *keyring) versions() kmsplugin.Versions {
	var vs kmsplugin.Versions
	for i, k := range r.keys {
		vs.All = append(vs.All, k.version())
		if k.id == r.writes {
			vs.Writes = i
		}
	}
	return vs
}

// KeyInfo is what may be told of a version.
type KeyInfo struct {
	// ID names the version in the file, on every node.
	ID string `json:"id"`
	// KeyID is what an apiserver sees, and stores beside each value.
	KeyID string `json:"keyID"`
	// Hash is how apiservers and other tools show the key_id: "sha256:" and 64 digits.
	Hash string `json:"hash"`
	// Formerly is its key_id in a file of format 1, and FormerHash the hash of that.
	Formerly   string `json:"formerly,omitempty"`
	FormerHash string `json:"formerHash,omitempty"`
	// Created is in UTC, by the clock of the host that made it.
	Created time.Time `json:"created"`
	// Writes is true for the one that wraps.
	Writes bool `json:"writes"`
}

func (r *keyring) info(k key) KeyInfo {
	keyID := k.version().KeyID()
	return KeyInfo{ID: k.id, KeyID: keyID, Hash: hashed.ID(keyID), Formerly: k.formerly, FormerHash: hashed.ID(k.formerly), Created: k.created, Writes: k.id == r.writes}
}

func (r *keyring) infos() []KeyInfo {
	infos := make([]KeyInfo, len(r.keys))
	for i, k := range r.keys {
		infos[i] = r.info(k)
	}
	return infos
}
