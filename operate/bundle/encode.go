package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/internal/hashed"
)

// manifestKind is the kind of a [manifest].
const manifestKind = "Bundle"

// manifest is what a bundle says of itself.
type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Revision   uint64 `json:"revision"`
	Hash       string `json:"hash"`
	Salt       []byte `json:"salt,omitempty"`
}

// maxManifest is the longest text of one, in bytes.
const maxManifest = 1 << 10

// Encode gives the bundle as the data of a Secret: bundle, with the revision, the hash
// and the salt, encryption-config, and for each keyID kms-plugin-config-KEYID and its
// parts by [Part.FileName]. The contents are the caller's.
func (b *Bundle) Encode() map[string][]byte {
	data := map[string][]byte{manifestName: b.manifest()}
	for name, content := range b.contents() {
		data[name] = bytes.Clone(content)
	}
	return data
}

func (b *Bundle) manifest() []byte {
	text, _ := json.Marshal(manifest{APIVersion, manifestKind, b.revision, b.hash, b.salt}) // which has nothing that fails
	return append(text, '\n')
}

// contents are all but the manifest, by data key.
func (b *Bundle) contents() map[string][]byte {
	all := map[string][]byte{configName: b.raw}
	for _, p := range b.plugins {
		all[settingsPrefix+p.id.String()] = p.raw
		for part, content := range p.parts {
			all[part.FileName(p.id)] = content
		}
	}
	return all
}

func (b *Bundle) size() int {
	size := maxManifest
	for name, content := range b.contents() {
		size += len(name) + len(content)
	}
	return size
}

// hashOf is SHA-256 over the salt and all contents with their names, in the order of the
// names. Each has its length before it, so that nothing can move from one to the next.
func hashOf(salt []byte, contents map[string][]byte) string {
	var all fields
	all.add([]byte("kube-atrest bundle 1"))
	all.add(salt)
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		all.add([]byte(name))
		all.add(contents[name])
	}
	return hashed.Name(all)
}

// maxEntries is the most data keys that are looked at.
const maxEntries = 1024

// Decode reads what [Bundle.Encode] gives, and refuses it whole if anything in it is
// unknown, missing or not what the hash is of. data is not kept.
func Decode(data map[string][]byte) (*Bundle, error) {
	var found problems
	if err := checkBounds(data); err != nil {
		found.add(err)
		return nil, found.err()
	}
	says, err := readManifest(data)
	found.add(err)
	d, err := draftOf(data)
	found.add(err)
	if len(found) > 0 {
		return nil, found.err()
	}
	d.Revision, d.Salt = says.Revision, says.Salt
	b, err := New(d)
	if err != nil {
		return nil, err
	}
	if b.hash != says.Hash {
		found.addf("its contents are not those that its hash is of: a part was changed, or is of another revision; make the bundle anew")
		return nil, found.err()
	}
	return b, nil
}

func checkBounds(data map[string][]byte) error {
	if len(data) > maxEntries {
		return fmt.Errorf("%d parts, and at most %d are read", len(data), maxEntries)
	}
	size := 0
	for name, content := range data {
		size += len(name) + len(content)
	}
	if size > MaxSize {
		return fmt.Errorf("%d bytes, and at most %d are read", size, MaxSize)
	}
	return nil
}

func readManifest(data map[string][]byte) (manifest, error) {
	var says manifest
	text, ok := data[manifestName]
	switch {
	case !ok:
		return says, fmt.Errorf("%s is missing, with the revision and the hash: \"atrest bundle make\" writes it", manifestName)
	case len(text) > maxManifest:
		return says, fmt.Errorf("%s has %d bytes, and at most %d are read", manifestName, len(text), maxManifest)
	}
	if err := decodeStrict(text, &says); err != nil {
		return says, fmt.Errorf("%s: %w", manifestName, err)
	}
	if says.Kind != manifestKind || says.APIVersion != APIVersion {
		return says, fmt.Errorf("%s is not of kind %s and apiVersion %s", manifestName, manifestKind, APIVersion)
	}
	return says, nil
}

// draftOf sorts data into plugins, by the names.
func draftOf(data map[string][]byte) (Draft, error) {
	var errs []error
	d := Draft{As: "bundle"}
	plugins := map[KeyID]*DraftPlugin{}
	plugin := func(id KeyID) *DraftPlugin {
		if plugins[id] == nil {
			plugins[id] = &DraftPlugin{As: "plugin", KeyID: id, Parts: map[Part][]byte{}}
		}
		return plugins[id]
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		switch digits, isSettings := strings.CutPrefix(name, settingsPrefix); {
		case name == manifestName:
		case name == configName:
			d.EncryptionConfig = data[name]
		case isSettings:
			id, err := ParseKeyID(digits)
			errs = append(errs, err)
			plugin(id).Settings = data[name]
		default:
			part, id, err := ParsePart(name)
			errs = append(errs, err)
			plugin(id).Parts[part] = data[name]
		}
	}
	if _, ok := data[configName]; !ok {
		errs = append(errs, fmt.Errorf("%s is missing", configName))
	}
	for _, id := range slices.Sorted(maps.Keys(plugins)) {
		d.Plugins = append(d.Plugins, *plugins[id])
	}
	return d, join(errs...)
}
