package tpm

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
)

// proofSize is the size of a proof, and of the key that proofs are made with.
const proofSize = sha256.Size

// noAuth stands where a recovery key's auth is sealed, if there is no recovery key.
var noAuth [proofSize]byte

// opened is what the TPM unseals: a KEK, and what proves that a part of a file is for its recovery key.
type opened struct {
	kek.KEK
	auth []byte
}

// erase overwrites both.
func (o opened) erase() {
	o.KEK.Erase()
	clear(o.auth)
}

// take has all that is sealed from now on be for a recovery key.
func (r *ring) take(k *recoveryKey) {
	r.recovery, r.auth = k.public(formatVersion), k.auth
}

// proof is what nobody makes of a key who has neither the recovery key nor a TPM that keys are sealed
// under for it: it binds what is sealed for the recovery key to that, and to what is told of it.
func (r *ring) proof(k key, auth []byte) []byte {
	raw, _ := hex.DecodeString(k.id) // was checked
	mac := hmac.New(sha256.New, auth)
	mac.Write([]byte("atrest-tpm/proof/v2\x00"))
	mac.Write(r.recovery) // has one size
	mac.Write(raw)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(k.created.UnixMilli())))
	mac.Write(k.recovery)
	return mac.Sum(nil)
}

var errChanged = errors.New("the recovery key of the file, or what is sealed for it, is not what was sealed with the keys: somebody has changed the file: restore a copy that nobody else could write, or make a new recovery key (reseal --recovery)")

// proves is an error if the file has another recovery key than what was sealed under the TPM with one key
// says, or for any of some keys something else than what was sealed for that. One key says it of all:
// a file is sealed as a whole. One of the first format has no proofs.
func (r *ring) proves(auth []byte, keys ...key) error {
	without := hmac.Equal(auth, noAuth[:])
	if r.format == firstFormat || without && r.recovery == nil {
		return nil
	}
	for _, k := range keys {
		if without || r.recovery == nil || !hmac.Equal(r.proof(k, auth), k.proof) {
			return fmt.Errorf("%w: version %s: %w", ErrDamaged, k.id, errChanged)
		}
	}
	return nil
}

// authOf is what keys are sealed with for the recovery key that the file has. The TPM has to say
// that it is the one.
func (r *ring) authOf(c *chip) ([]byte, error) {
	if err := c.is(r.primary); err != nil {
		return nil, err
	}
	if r.format == firstFormat {
		return nil, r.firstFormatError()
	}
	// Where the one that writes does not open, a new one would hide that.
	secret, err := openKey(c, r, r.ByID[r.Writes])
	if err != nil {
		return nil, err
	}
	secret.KEK.Erase()
	return secret.auth, r.proves(secret.auth, r.Keys...)
}

var errFirstFormat = errors.New("the file has the first version of its format, in which nothing proves whose its recovery key is, and no key is sealed for that: seal all again first")

func (r *ring) firstFormatError() error {
	if r.recovery == nil {
		return fmt.Errorf("%w (reseal)", errFirstFormat)
	}
	return fmt.Errorf("%w, with the recovery key (recover) or for a new one (reseal --recovery)", errFirstFormat)
}

// prove is an error if what comes from a file with the recovery key may be somebody else's.
func (s *Store) prove(all *ring, id string, same bool) error {
	if all.format != firstFormat || same || s.config.Unproven {
		return nil
	}
	return fmt.Errorf("nothing proves that version %s is what its node has made: the file has the first version of its format, and who could write it may have put a key there: seal it again on its node first (recover, or reseal --recovery) and take a fresh copy; if there is no such node any more, and nobody else could write the file, take it so (--unproven)", id)
}
