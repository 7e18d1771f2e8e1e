package keyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
)

// Limits of a key file.
const (
	// maxVersions bounds the versions in a file: one a day for 27 years.
	maxVersions = 10_000
	// maxFileSize bounds a key file in bytes; maxVersions stay well below.
	maxFileSize = 4 << 20
)

const (
	formatName    = "atrest-keyfile"
	formatVersion = 1
)

// header is what tells this format, and this version of it, from others.
type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

// document and entry are the file's JSON. They hold key material in the clear
// and live only inside encode and decode.
type document struct {
	header
	Checksum string  `json:"checksum"`
	Keys     []entry `json:"keys"`
}

type entry struct {
	KeyID   string    `json:"keyID"`
	Created time.Time `json:"created"`
	KEK     []byte    `json:"kek"`
}

// encode returns the bytes of the file: one form only for the same keys.
func encode(keys []key) ([]byte, error) {
	entries := make([]entry, len(keys))
	for i, k := range keys {
		entries[i] = entry{KeyID: k.id, Created: k.created, KEK: k.kek.reveal().bytes[:]}
	}
	checksum, err := checksum(entries)
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(document{
		header:   header{Format: formatName, Version: formatVersion},
		Checksum: checksum,
		Keys:     entries,
	}, "", "  ")
	if err != nil {
		return nil, errors.New("key file: its JSON cannot be written: is the clock between the years 0 and 9999?")
	}
	return append(data, '\n'), nil
}

func checksum(entries []entry) (string, error) {
	compact, err := json.Marshal(entries)
	if err != nil {
		return "", errors.New("key file: its JSON cannot be written: is the clock between the years 0 and 9999?")
	}
	return hashed.Name(compact), nil
}

// decode reads what encode wrote and nothing else. Its errors never quote the
// file, nor do they wrap those of package json, which may.
func decode(data []byte) ([]key, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	var head header
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, errors.New("it is not the JSON this program writes: cut short, or changed")
	}
	if head.Format != formatName {
		return nil, fmt.Errorf("its format is not %q: it is some other program's file", formatName)
	}
	if head.Version != formatVersion {
		return nil, fmt.Errorf("its format has version %d and this program knows %d: use the program that wrote it", head.Version, formatVersion)
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, errors.New("a field has a value of the wrong kind")
	}
	sum, err := checksum(doc.Keys)
	if err != nil || sum != doc.Checksum {
		return nil, errors.New("its checksum does not fit its keys")
	}
	keys, err := doc.keys()
	if err != nil {
		return nil, err
	}
	again, err := encode(keys)
	if err != nil || !bytes.Equal(data, again) {
		return nil, errors.New("it was changed after this program wrote it: reformatted, or fields added")
	}
	return keys, nil
}

func (d document) keys() ([]key, error) {
	if len(d.Keys) == 0 || len(d.Keys) > maxVersions {
		return nil, fmt.Errorf("it has %d versions, not 1 to %d", len(d.Keys), maxVersions)
	}
	keys := make([]key, len(d.Keys))
	for i, e := range d.Keys {
		if err := checkID(e.KeyID, i+1); err != nil {
			return nil, err
		}
		if len(e.KEK) != kekSize {
			return nil, fmt.Errorf("the key of %s has %d bytes, not %d", e.KeyID, len(e.KEK), kekSize)
		}
		secret, err := newKEK([kekSize]byte(e.KEK))
		if err != nil {
			return nil, err
		}
		keys[i] = key{id: e.KeyID, created: e.Created.UTC(), kek: secret}
	}
	return keys, nil
}
