//go:build cgo

package pkcs11

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/kube-atrest/atrest/kmsplugin"
)

// kind is of all keys here. It is part of their key_ids.
const kind = "pkcs11-aes-gcm"

// A keyID is the CKA_ID of a key: who made it, which of its label it is, when it was made, and 16
// random bytes. A key whose CKA_ID is anything else could have it again after it was deleted and
// made again, as that of a key which somebody numbered has, and is not used.
//
//	bytes  0 to 3   "atr1"
//	bytes  4 to 7   a counter, from 1 on: the newest wraps, whatever clocks say
//	bytes  8 to 15  seconds since 1970
//	bytes 16 to 31  random
type keyID [32]byte

const mark = "atr1"

func newKeyID(counter uint32, now time.Time) keyID {
	var id keyID
	copy(id[:], mark)
	binary.BigEndian.PutUint32(id[4:], counter)
	binary.BigEndian.PutUint64(id[8:], uint64(now.Unix()))
	_, _ = rand.Read(id[16:]) // which ends the process rather than fail
	return id
}

// parseKeyID reads a CKA_ID from a token.
func parseKeyID(raw []byte) (keyID, bool) {
	var id keyID
	if len(raw) != len(id) || !bytes.HasPrefix(raw, []byte(mark)) {
		return id, false
	}
	copy(id[:], raw)
	return id, id.counter() > 0
}

func (id keyID) counter() uint32 { return binary.BigEndian.Uint32(id[4:]) }

// created is the zero time if the CKA_ID holds none that can be.
func (id keyID) created() time.Time {
	seconds := binary.BigEndian.Uint64(id[8:])
	if seconds == 0 || seconds > 1<<40 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0).UTC()
}

// label is how people name the version. It holds a part of what is random, as two nodes that
// rotate at once count to the same number.
func (id keyID) label() string {
	return fmt.Sprintf("%d-%s", id.counter(), hex.EncodeToString(id[16:20]))
}

func (id keyID) version() kmsplugin.Version {
	return kmsplugin.Version{Kind: kind, Lineage: id[:], Label: id.label(), Created: id.created()}
}

// older orders keys by counter, and those of one number in the same way on every node.
func older(a, b keyID) int { return bytes.Compare(a[4:], b[4:]) }
