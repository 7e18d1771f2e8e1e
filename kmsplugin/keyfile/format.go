package keyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin/internal/kek"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keyring"
)

// maxVersions bounds the versions in a file: one a day for 27 years. So many stay well below
// [keptfile.MaxSize].
const maxVersions = 10_000

const (
	formatName = "atrest-keyfile"
	// formatVersion is what is written. Format 1 is read as well: there the last key
	// wraps, and each has a key_id that tells its position.
	formatVersion = 2
)

// header is what tells this format, and this version of it, from others.
type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

// document and entry are the file's JSON, of either format. They hold key material in the
// clear and live only inside encode and decode.
type document struct {
	header
	Checksum string `json:"checksum"`
	content
}

type content struct {
	Writes    string   `json:"writes,omitempty"` // not in format 1
	Keys      []entry  `json:"keys"`
	Destroyed []string `json:"destroyed,omitempty"` // not in format 1
}

type entry struct {
	ID       string    `json:"id,omitempty"`       // not in format 1
	Formerly string    `json:"formerly,omitempty"` // not in format 1
	KeyID    string    `json:"keyID,omitempty"`    // in format 1 alone
	Created  time.Time `json:"created"`
	KEK      []byte    `json:"kek"`
}

var errClock = errors.New("key file: its JSON cannot be written: is the clock between the years 0 and 9999?")

// encode returns the bytes of the file: one form only for the same keys.
func encode(r *ring) ([]byte, error) {
	c := content{Writes: r.Writes, Keys: make([]entry, len(r.Keys)), Destroyed: r.Destroyed}
	for i, k := range r.Keys {
		c.Keys[i] = entry{ID: k.id, Formerly: k.formerly, Created: k.created, KEK: k.kek.Reveal()}
	}
	return c.encode(formatVersion)
}

func (c content) encode(version int) ([]byte, error) {
	checksum, err := c.checksum(version)
	if err != nil {
		return nil, err
	}
	data, err := json.MarshalIndent(document{header{formatName, version}, checksum, c}, "", "  ")
	if err != nil {
		return nil, errClock
	}
	return append(data, '\n'), nil
}

// checksum is of the compact JSON of all of it, in format 1 of the keys.
func (c content) checksum(version int) (string, error) {
	var of any = c
	if version == 1 {
		of = c.Keys
	}
	compact, err := json.Marshal(of)
	if err != nil {
		return "", errClock
	}
	defer clear(compact)
	return hashed.Name(compact), nil
}

// decode reads what encode wrote, now or as format 1, and nothing else. Its errors never
// quote the file but for ids, nor do they wrap those of package json, which may.
func decode(data []byte) (*ring, error) {
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
	if head.Version < 1 || head.Version > formatVersion {
		return nil, fmt.Errorf("its format has version %d and this program knows 1 to %d: use the program that wrote it", head.Version, formatVersion)
	}
	var doc document
	defer doc.wipe()
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, errors.New("a field has a value of the wrong kind")
	}
	if sum, err := doc.checksum(doc.Version); err != nil || sum != doc.Checksum {
		return nil, errors.New("its checksum does not fit its keys")
	}
	ring, err := doc.ring()
	if err != nil {
		return nil, err
	}
	again, err := doc.encode(doc.Version)
	defer clear(again)
	if err != nil || !bytes.Equal(data, again) {
		return nil, errors.New("it was changed after this program wrote it: reformatted, or fields added")
	}
	return ring, nil
}

// wipe clears the keys, once they are in a ring or of no use.
func (d *document) wipe() {
	for _, e := range d.Keys {
		clear(e.KEK)
	}
}

func (d document) ring() (*ring, error) {
	if len(d.Keys) == 0 || len(d.Keys) > maxVersions {
		return nil, fmt.Errorf("it has %d versions, not 1 to %d", len(d.Keys), maxVersions)
	}
	keys := make([]key, len(d.Keys))
	for i, e := range d.Keys {
		name := e.nameIn2
		if d.Version == 1 {
			name = e.nameIn1
		}
		var err error
		if keys[i], err = name(i + 1); err != nil {
			return nil, err
		}
		if len(e.KEK) != kek.Size {
			return nil, fmt.Errorf("the key of %s has %d bytes, not %d", keys[i].id, len(e.KEK), kek.Size)
		}
		if _, offset := e.Created.Zone(); offset != 0 {
			return nil, fmt.Errorf("the key of %s was not created in UTC", keys[i].id)
		}
		if keys[i].kek, err = kek.New(domain, [kek.Size]byte(e.KEK)); err != nil {
			return nil, err
		}
	}
	writes := d.Writes
	if d.Version == 1 {
		if writes != "" {
			return nil, errors.New("format 1 does not say which key writes")
		}
		writes = keys[len(keys)-1].id
	} else if !slices.IsSortedFunc(keys, keyring.Older) {
		return nil, errors.New("its keys are not in the order of their age")
	}
	ring := newRing(writes, keys...)
	ring.format, ring.Destroyed = d.Version, d.Destroyed
	if len(ring.Destroyed) > 0 && ring.format == 1 {
		return nil, errors.New("format 1 does not say what was destroyed")
	}
	return ring, ring.Check()
}

// nameIn1 is the key of an entry of format 1, at a position, without its KEK.
func (e entry) nameIn1(position int) (key, error) {
	if e.ID != "" || e.Formerly != "" {
		return key{}, errors.New("format 1 has no ids")
	}
	at, id, err := positionOf(e.KeyID)
	if err == nil && at != position {
		err = fmt.Errorf("key_id %.64q is not that of version %d", e.KeyID, position)
	}
	return key{id: id, formerly: e.KeyID, created: e.Created.UTC()}, err
}

// nameIn2 is the key of an entry of format 2, without its KEK.
func (e entry) nameIn2(int) (key, error) {
	if e.KeyID != "" {
		return key{}, errors.New("format 2 has no key_ids")
	}
	if e.Formerly != "" {
		if _, id, err := positionOf(e.Formerly); err != nil || id != e.ID {
			return key{}, fmt.Errorf("id %.64q was not formerly %.64q", e.ID, e.Formerly)
		}
	}
	return key{id: e.ID, formerly: e.Formerly, created: e.Created.UTC()}, keyring.CheckID(e.ID)
}
