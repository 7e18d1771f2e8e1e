package tpm

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin"
	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keyring"
)

// A key is one KEK as the file has it: sealed.
type key struct {
	id        string // drawn on its own: it says nothing of the KEK
	created   time.Time
	sealed    sealed
	pcrValues [][]byte // what the PCRs were when it was sealed
	recovery  []byte   // the KEK for the recovery key, or nil
	proof     []byte   // that it is: see ring.proof
}

// ID is its name.
func (k key) ID() string { return k.id }

// Created is when it was made.
func (k key) Created() time.Time { return k.created }

// Equal leaves out how it is sealed, which is another way on each machine.
func (k key) Equal(other key) bool { return k.id == other.id && k.created.Equal(other.created) }

// Version is what the kit knows of it.
func (k key) Version() kmsplugin.Version {
	lineage, _ := hex.DecodeString(k.id) // was checked
	return kmsplugin.Version{Kind: "tpm-sealed", Lineage: lineage, Label: k.id, Created: k.created}
}

// sealedAlike tells if both are sealed by the same act.
func (k key) sealedAlike(other key) bool {
	return bytes.Equal(k.sealed.private, other.sealed.private) && bytes.Equal(k.sealed.public, other.sealed.public)
}

// domain separates this use of a KEK from any other.
const domain = "atrest-tpm/v1\x00"

// secretOf is what is sealed: the id with the KEK, so that no other KEK is ever opened under it.
func secretOf(id string, k kek.KEK) []byte {
	raw, _ := hex.DecodeString(id) // was checked
	return append(raw, k.Reveal()...)
}

// openedOf is what a TPM has unsealed as an id, in a file of some format. It is erased.
func openedOf(format int, id string, secret []byte) (opened, error) {
	auth := bytes.Clone(noAuth[:])
	if format != firstFormat {
		size := max(0, len(secret)-proofSize)
		auth = bytes.Clone(secret[size:])
		clear(secret[size:])
		secret = secret[:size]
	}
	k, err := kekOf(id, secret)
	return opened{k, auth}, err
}

// kekOf is the KEK of an id in what was unsealed, which is erased.
func kekOf(id string, secret []byte) (kek.KEK, error) {
	defer clear(secret)
	raw, _ := hex.DecodeString(id)
	if len(secret) != keyring.IDSize+kek.Size || !bytes.Equal(secret[:keyring.IDSize], raw) {
		return kek.KEK{}, fmt.Errorf("%w: what is sealed as version %s is something else", ErrDamaged, id)
	}
	return kek.New(domain, [kek.Size]byte(secret[keyring.IDSize:]))
}

// A ring is all keys of a file, with what holds for each. It is read-only.
type ring struct {
	*keyring.Ring[key]
	primary  []byte // Name of the storage key
	pcrs     pcrs
	recovery []byte // public half of the recovery key, or nil
	format   int    // of the file that it is from
	// auth makes the proofs that are to be sealed, for the recovery key; only then is it there.
	auth []byte
}

func newKEK(random io.Reader) (id string, k kek.KEK, err error) {
	if id, err = keyring.NewID(random); err != nil {
		return "", kek.KEK{}, err
	}
	k, err = kek.Random(domain, random)
	return id, k, err
}

// like is a ring of other keys for which the same holds.
func (r *ring) like(keys *keyring.Ring[key]) *ring {
	next := *r
	next.Ring = keys
	return &next
}

// KeyInfo is what may be told of a version.
type KeyInfo struct {
	// ID names the version in the file, on every node.
	ID string `json:"id"`
	// KeyID is what an apiserver sees, and stores beside each value.
	KeyID string `json:"keyID"`
	// Hash is how apiservers and other tools show the key_id: "sha256:" and 64 digits.
	Hash string `json:"hash"`
	// Created is in UTC, by the clock of the host that made it.
	Created time.Time `json:"created"`
	// Writes is true for the one that wraps.
	Writes bool `json:"writes"`
	// PCRs are those that it opens with, as in "sha256:7,11"; empty if it is bound to none.
	PCRs string `json:"pcrs,omitempty"`
	// Recovery is true if there is a recovery key for it.
	Recovery bool `json:"recovery"`
}

func (r *ring) info(k key) KeyInfo {
	keyID := k.Version().KeyID()
	return KeyInfo{ID: k.id, KeyID: keyID, Hash: hashed.ID(keyID), Created: k.created, Writes: k.id == r.Writes, PCRs: r.pcrs.String(), Recovery: k.recovery != nil}
}
