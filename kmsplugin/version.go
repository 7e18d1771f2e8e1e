package kmsplugin

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
)

// A Version is one KEK, for ever. What it says of itself makes its key_id, so that two
// KEKs never have the same one, and one KEK has the same one on every node.
type Version struct {
	// Kind is the kind of back end that has it, as in "vault-transit".
	Kind string
	// Lineage tells the key apart from any other of its Kind, also from one that is made
	// under the same name later: what was drawn or counted when it was made. It is
	// no address, which may change while the key stays.
	Lineage []byte
	// Label is the back end's own name of the version, as in "7".
	Label string
	// Created is when it was made, by the clock of who made it; zero if nobody tells. It
	// is no part of the key_id.
	Created time.Time
	// Formerly are key_ids that it was known by before this kit made them. What names one
	// of them is unwrapped, and nothing is wrapped under them.
	Formerly []string
}

// domain separates key_ids from other hashes of the same bytes.
const domain = "atrest/kmsplugin/v1"

// KeyID is 64 hexadecimal digits: the SHA-256 over the length-prefixed Kind, Lineage and
// Label. It shows none of them.
func (v Version) KeyID() string {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(domain), []byte(v.Kind), v.Lineage, []byte(v.Label)} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// String is for logs and errors.
func (v Version) String() string {
	return fmt.Sprintf("version %.64q of %s, key_id %s", v.Label, v.Kind, v.KeyID())
}
