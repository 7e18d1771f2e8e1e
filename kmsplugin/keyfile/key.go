package keyfile

import (
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
	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keyring"
)

// A key is one KEK with its name.
type key struct {
	id       string // 32 hexadecimal digits, drawn on their own: they say nothing of the KEK
	formerly string // its key_id in a file of format 1, or empty
	created  time.Time
	kek      kek.KEK
}

// domain separates this use of a KEK from any other.
const domain = "atrest-keyfile/v1\x00"

func newKey(created time.Time, random io.Reader) (key, error) {
	id, err := keyring.NewID(random)
	if err != nil {
		return key{}, err
	}
	secret, err := kek.Random(domain, random)
	return key{id: id, created: keyring.Time(created), kek: secret}, err
}

// positionOf is the place in a file of format 1 that a key_id of it tells, and its other half.
func positionOf(keyID string) (position int, id string, err error) {
	digits, id, _ := strings.Cut(keyID, ".")
	position, err = strconv.Atoi(digits)
	if err != nil || position < 1 || position > maxVersions || strconv.Itoa(position) != digits || keyring.CheckID(id) != nil {
		return 0, "", fmt.Errorf("key_id %.64q is not a version, a dot and 32 hexadecimal digits", keyID)
	}
	return position, id, nil
}

// ID is its name.
func (k key) ID() string { return k.id }

// Created is when it was made.
func (k key) Created() time.Time { return k.created }

// Version is what the kit knows of it.
func (k key) Version() kmsplugin.Version {
	lineage, _ := hex.DecodeString(k.id) // was checked
	v := kmsplugin.Version{Kind: "keyfile", Lineage: lineage, Label: k.id, Created: k.created}
	if k.formerly != "" {
		v.Formerly = []string{k.formerly}
	}
	return v
}

// Equal compares all of it.
func (k key) Equal(other key) bool {
	return k.id == other.id && k.formerly == other.formerly && k.created.Equal(other.created) && k.kek.Equal(other.kek)
}

// A ring is all keys of a file. It is read-only.
type ring struct {
	*keyring.Ring[key]
	format int // of the file that it was read from, or 0
}

func newRing(writes string, keys ...key) *ring { return &ring{Ring: keyring.New(writes, keys...)} }

// writing is the same with another key that wraps.
func (r *ring) writing(id string) *ring { return &ring{Ring: r.Writing(id)} }

// erase wipes the KEKs of a ring that is compared with none and written nowhere any more. A call
// that still wraps with one of them does, with what its cipher keeps.
func (r *ring) erase() {
	for _, k := range r.Keys {
		k.kek.Erase()
	}
}

// merged has the keys of both, but for those that were destroyed in either. The writer created
// later writes. It is the same whichever is merged into which.
func (r *ring) merged(other *ring) (*ring, error) {
	if err := errors.Join(r.Spares(other.Ring), other.Spares(r.Ring)); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(slices.Clone(r.Keys), func(k key) bool { return other.HasDestroyed(k.id) })
	for _, k := range other.Keys {
		switch mine, ok := r.ByID[k.id]; {
		case !ok && r.HasDestroyed(k.id):
		case !ok:
			all = append(all, k)
		case !mine.Equal(k):
			return nil, fmt.Errorf("%w: version %s is not the same in both files: one of them was not made by this program", ErrDamaged, k.id)
		}
	}
	writer := slices.MaxFunc([]key{r.ByID[r.Writes], other.ByID[other.Writes]}, keyring.Older)
	next := newRing(writer.id, all...)
	next.Destroyed = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.Destroyed, other.Destroyed))))
	return next, nil
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

func (r *ring) info(k key) KeyInfo {
	keyID := k.Version().KeyID()
	return KeyInfo{ID: k.id, KeyID: keyID, Hash: hashed.ID(keyID), Formerly: k.formerly, FormerHash: hashed.ID(k.formerly), Created: k.created, Writes: k.id == r.Writes}
}

func (r *ring) infos() []KeyInfo {
	infos := make([]KeyInfo, len(r.Keys))
	for i, k := range r.Keys {
		infos[i] = r.info(k)
	}
	return infos
}
