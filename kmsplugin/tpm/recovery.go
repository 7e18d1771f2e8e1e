package tpm

import (
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The suite of the recovery key: see the comment of the package.
var (
	recoveryKEM  = hpke.MLKEM768X25519()
	recoveryKDF  = hpke.HKDFSHA256()
	recoveryAEAD = hpke.AES256GCM()
)

const (
	seedSize     = 32
	checksumSize = 3
	groupSize    = 4
)

// ErrRecoveryKey: what was given as a recovery key is none, or another file's.
var ErrRecoveryKey = errors.New("wrong recovery key")

// recoveryInfo binds what is sealed for the recovery key to this use, and to an id.
func recoveryInfo(id string) []byte { return []byte("atrest-tpm/recovery/v1\x00" + id) }

// A recoveryKey is what is on paper, with all that is made of it.
type recoveryKey struct {
	// first opens files of the first format, and private all others: so nobody passes a file off
	// as one of the first, which has no proofs, for a recovery key that was never used for one.
	first, private hpke.PrivateKey
	auth           []byte // makes the proofs
}

func newRecoveryKey(seed []byte) (*recoveryKey, error) {
	private, err := hkdf.Key(sha256.New, seed, nil, "atrest-tpm/recovery/v2", seedSize)
	if err != nil {
		return nil, err
	}
	defer clear(private)
	k := new(recoveryKey)
	if k.auth, err = hkdf.Key(sha256.New, seed, nil, "atrest-tpm/proof/v2", proofSize); err != nil {
		return nil, err
	}
	if k.first, err = recoveryKEM.NewPrivateKey(seed); err != nil {
		return nil, err
	}
	k.private, err = recoveryKEM.NewPrivateKey(private)
	return k, err
}

// of is the half that opens a file of some format, and public the half that is in it.
func (k *recoveryKey) of(format int) hpke.PrivateKey {
	if format == firstFormat {
		return k.first
	}
	return k.private
}

func (k *recoveryKey) public(format int) []byte { return k.of(format).PublicKey().Bytes() }

// newRecovery draws a recovery key, with what is shown of it.
func newRecovery(random io.Reader) (text string, key *recoveryKey, err error) {
	var seed [seedSize]byte
	defer clear(seed[:])
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return "", nil, fmt.Errorf("randomness for a recovery key: %w", err)
	}
	if key, err = newRecoveryKey(seed[:]); err != nil {
		return "", nil, fmt.Errorf("recovery key: %w", err)
	}
	return showRecovery(seed), key, nil
}

// showRecovery writes a seed down: base32 in groups, with a checksum at the end.
func showRecovery(seed [seedSize]byte) string {
	sum := sha256.Sum256(seed[:])
	text := base32.StdEncoding.EncodeToString(append(seed[:], sum[:checksumSize]...))
	var groups []string
	for ; text != ""; text = text[groupSize:] {
		groups = append(groups, text[:groupSize])
	}
	return strings.Join(groups, "-")
}

// readRecovery reads what somebody has typed: whatever stands between the groups, small letters,
// and the digits that look like the letters which base32 has.
func readRecovery(text string) (*recoveryKey, error) {
	clean := strings.NewReplacer("-", "", " ", "", "\t", "", "\r", "", "\n", "", "0", "O", "1", "I", "8", "B").Replace(strings.ToUpper(text))
	raw, err := base32.StdEncoding.DecodeString(clean)
	defer clear(raw)
	if err != nil || len(raw) != seedSize+checksumSize {
		return nil, fmt.Errorf("%w: it has 14 groups of 4 letters and digits from 2 to 7, and this has %d characters or others", ErrRecoveryKey, len(clean))
	}
	sum := sha256.Sum256(raw[:seedSize])
	if string(sum[:checksumSize]) != string(raw[seedSize:]) {
		return nil, fmt.Errorf("%w: its checksum does not fit: a character is mistyped", ErrRecoveryKey)
	}
	key, err := newRecoveryKey(raw[:seedSize])
	if err != nil {
		return nil, fmt.Errorf("%w: it cannot be used", ErrRecoveryKey)
	}
	return key, nil
}

// checkRecovery holds the public half from a file against what newRecovery makes.
func checkRecovery(public []byte) error {
	if _, err := recoveryKEM.NewPublicKey(public); err != nil {
		return errors.New("its recovery key is none")
	}
	return nil
}

// sealFor seals a secret for a recovery key, or does nothing where there is none.
func sealFor(public []byte, id string, secret []byte) ([]byte, error) {
	if public == nil {
		return nil, nil
	}
	key, err := recoveryKEM.NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("recovery key: %w", err)
	}
	sealed, err := hpke.Seal(key, recoveryKDF, recoveryAEAD, recoveryInfo(id), secret)
	if err != nil {
		return nil, fmt.Errorf("recovery key: %w", err)
	}
	return sealed, nil
}

// openWith opens what sealFor made.
func openWith(key hpke.PrivateKey, id string, sealed []byte) ([]byte, error) {
	secret, err := hpke.Open(key, recoveryKDF, recoveryAEAD, recoveryInfo(id), sealed)
	if err != nil {
		return nil, fmt.Errorf("%w: the recovery key does not open version %s", ErrDamaged, id)
	}
	return secret, nil
}
