package tpm

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keptfile"
	"github.com/kube-atrest/atrest/kmsplugin/internal/keyring"
)

const (
	formatName    = "atrest-tpm"
	formatVersion = 2
	// firstFormat has no proofs.
	firstFormat = 1
	// maxVersions bounds the versions in a file, so that it stays below the size that is read:
	// one a week for 19 years. It promises no time. To open one takes a TPM six answers, to seal
	// it again 17: all of them take one of 20 ms an answer two minutes and six.
	maxVersions = 1000
	// maxPart bounds a part of a sealed key in bytes; they are some 200.
	maxPart = 1024
)

// header is what tells this format, and this version of it, from others.
type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

// document is the file's JSON.
type document struct {
	header
	Checksum string `json:"checksum"`
	content
}

type content struct {
	Primary  string  `json:"primary"`
	PCRs     string  `json:"pcrs,omitempty"`
	Recovery []byte  `json:"recovery,omitempty"`
	Writes   string  `json:"writes"`
	Keys     []entry `json:"keys"`
	// Destroyed are the ids of keys that were, in order.
	Destroyed []string `json:"destroyed,omitempty"`
}

type entry struct {
	ID        string    `json:"id"`
	Created   time.Time `json:"created"`
	Public    []byte    `json:"public"`
	Private   []byte    `json:"private"`
	PCRValues [][]byte  `json:"pcrValues,omitempty"`
	Recovery  []byte    `json:"recovery,omitempty"`
	Proof     []byte    `json:"proof,omitempty"`
}

var errClock = errors.New("key file: its JSON cannot be written: is the clock between the years 0 and 9999?")

// encode returns the bytes of the file: one form only for the same keys, and none that is not read again.
func encode(r *ring) ([]byte, error) {
	full := ""
	switch {
	case len(r.Keys) > maxVersions:
		full = fmt.Sprintf("it would have %d versions, more than %d", len(r.Keys), maxVersions)
	case len(r.Destroyed) > maxVersions:
		full = fmt.Sprintf("%d versions would have been destroyed in it, more than %d", len(r.Destroyed), maxVersions)
	}
	data, err := contentOf(r).encode(r.format)
	if len(data) > keptfile.MaxSize {
		full = cmp.Or(full, fmt.Sprintf("it would have %d bytes, more than %d", len(data), keptfile.MaxSize))
	}
	if full != "" {
		return nil, fmt.Errorf("%w: %s: serve a new file under another provider name and migrate to it", ErrFull, full)
	}
	return data, err
}

func contentOf(r *ring) content {
	c := content{Primary: hex.EncodeToString(r.primary), PCRs: r.pcrs.String(), Recovery: r.recovery, Writes: r.Writes, Destroyed: r.Destroyed}
	for _, k := range r.Keys {
		c.Keys = append(c.Keys, entry{ID: k.id, Created: k.created, Public: k.sealed.public, Private: k.sealed.private, PCRValues: k.pcrValues, Recovery: k.recovery, Proof: k.proof})
	}
	return c
}

func (c content) encode(format int) ([]byte, error) {
	compact, err := json.Marshal(c)
	if err != nil {
		return nil, errClock
	}
	data, err := json.MarshalIndent(document{header{formatName, format}, hashed.Name(compact), c}, "", "  ")
	if err != nil {
		return nil, errClock
	}
	return append(data, '\n'), nil
}

// decode reads what encode wrote and nothing else. Its errors never quote the file but for ids.
func decode(data []byte) (*ring, error) {
	var head header
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, errors.New("it is not the JSON this program writes: empty, cut short, or changed")
	}
	if head.Format != formatName {
		return nil, fmt.Errorf("its format is not %q: it is some other program's file", formatName)
	}
	if head.Version != firstFormat && head.Version != formatVersion {
		return nil, fmt.Errorf("its format has version %d and this program knows %d and %d: use the program that wrote it", head.Version, firstFormat, formatVersion)
	}
	var doc document
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, errors.New("a field has a value of the wrong kind")
	}
	again, err := doc.content.encode(head.Version)
	if err != nil || !bytes.Equal(data, again) {
		return nil, errors.New("its checksum does not fit, or it was changed after this program wrote it")
	}
	return doc.ring(head.Version)
}

func (c content) ring(format int) (*ring, error) {
	if len(c.Keys) == 0 || len(c.Keys) > maxVersions {
		return nil, fmt.Errorf("it has %d versions, not 1 to %d", len(c.Keys), maxVersions)
	}
	if len(c.Destroyed) > maxVersions {
		return nil, fmt.Errorf("it says that %d versions were destroyed, more than %d", len(c.Destroyed), maxVersions)
	}
	r := &ring{recovery: c.Recovery, format: format}
	var err error
	if r.primary, err = hex.DecodeString(c.Primary); err != nil || len(r.primary) == 0 {
		return nil, errors.New("it does not name the TPM that it was made with")
	}
	if r.pcrs, err = parsePCRs(c.PCRs); err != nil || r.pcrs.String() != c.PCRs {
		return nil, errors.New("its PCRs are none")
	}
	if c.Recovery != nil {
		if err := checkRecovery(c.Recovery); err != nil {
			return nil, err
		}
	}
	keys := make([]key, len(c.Keys))
	for i, e := range c.Keys {
		if err := c.check(e, len(r.pcrs.numbers), format); err != nil {
			return nil, err
		}
		keys[i] = key{id: e.ID, created: e.Created.UTC(), sealed: sealed{e.Public, e.Private}, pcrValues: e.PCRValues, recovery: e.Recovery, proof: e.Proof}
	}
	if !slices.IsSortedFunc(keys, keyring.Older) {
		return nil, errors.New("its keys are not in the order of their age")
	}
	r.Ring = keyring.New(c.Writes, keys...)
	r.Destroyed = c.Destroyed
	return r, r.Check()
}

func (c content) check(e entry, values, format int) error {
	if err := keyring.CheckID(e.ID); err != nil {
		return err
	}
	if _, offset := e.Created.Zone(); offset != 0 {
		return fmt.Errorf("the key of %s was not created in UTC", e.ID)
	}
	for _, part := range [][]byte{e.Public, e.Private} {
		if len(part) == 0 || len(part) > maxPart {
			return fmt.Errorf("a part of the sealed key of %s has %d bytes, not 1 to %d", e.ID, len(part), maxPart)
		}
	}
	if len(e.PCRValues) != values {
		return fmt.Errorf("the key of %s has the values of %d PCRs, not %d", e.ID, len(e.PCRValues), values)
	}
	if (e.Recovery == nil) != (c.Recovery == nil) {
		return fmt.Errorf("the key of %s is sealed for the recovery key and the file has none, or the other way round", e.ID)
	}
	proof := 0
	if c.Recovery != nil && format != firstFormat {
		proof = proofSize
	}
	if len(e.Proof) != proof || (e.Proof == nil) != (proof == 0) {
		return fmt.Errorf("the key of %s has a proof of %d bytes, not %d", e.ID, len(e.Proof), proof)
	}
	return nil
}
