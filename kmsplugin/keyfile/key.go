package keyfile

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"
)

// A key is one version: a KEK with its name.
type key struct {
	id      string
	created time.Time
	kek     kek
}

// newKey makes the key of a version, 1 for the first. The random half of its
// key_id keeps it apart from the same version of any other file, and is drawn
// on its own so that it says nothing about the KEK.
func newKey(version int, created time.Time, random io.Reader) (key, error) {
	var unique [16]byte
	if _, err := io.ReadFull(random, unique[:]); err != nil {
		return key{}, fmt.Errorf("randomness for a new key_id: %w", err)
	}
	secret, err := randomKEK(random)
	if err != nil {
		return key{}, err
	}
	return key{
		id:      fmt.Sprintf("%d.%x", version, unique),
		created: created.UTC().Truncate(time.Second),
		kek:     secret,
	}, nil
}

// checkID holds a key_id from a file against what newKey makes.
func checkID(id string, version int) error {
	unique, ok := strings.CutPrefix(id, fmt.Sprintf("%d.", version))
	if !ok {
		return fmt.Errorf("key_id %.64q is not that of version %d", id, version)
	}
	if raw, err := hex.DecodeString(unique); err != nil || len(raw) != 16 || unique != strings.ToLower(unique) {
		return fmt.Errorf("key_id %.64q does not end in 32 hexadecimal digits", id)
	}
	return nil
}

// A keyring is all versions of a file, oldest first and never none; the last
// one wraps. It is read-only.
type keyring struct {
	keys []key
	byID map[string]kek
}

func newKeyring(keys []key) *keyring {
	ring := &keyring{keys: keys, byID: make(map[string]kek, len(keys))}
	for _, k := range keys {
		ring.byID[k.id] = k.kek
	}
	return ring
}

// newest is the key that wraps.
func (r *keyring) newest() key { return r.keys[len(r.keys)-1] }

// startsWith reports whether every version of older is in r, unchanged.
func (r *keyring) startsWith(older *keyring) bool {
	if len(r.keys) < len(older.keys) {
		return false
	}
	for i, k := range older.keys {
		if r.keys[i].id != k.id || !r.keys[i].kek.equal(k.kek) {
			return false
		}
	}
	return true
}

// KeyInfo is what may be told of a key.
type KeyInfo struct {
	// Version counts from 1 within one file.
	Version int `json:"version"`
	// KeyID is what an apiserver sees, and stores beside each value.
	KeyID string `json:"keyID"`
	// Created is in UTC, to the second, by the clock of the host that made it.
	Created time.Time `json:"created"`
	// Writes is true for the newest version: the one that wraps.
	Writes bool `json:"writes"`
}

func (r *keyring) infos() []KeyInfo {
	infos := make([]KeyInfo, len(r.keys))
	for i, k := range r.keys {
		infos[i] = KeyInfo{Version: i + 1, KeyID: k.id, Created: k.created, Writes: i == len(r.keys)-1}
	}
	return infos
}
