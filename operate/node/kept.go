package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/wholefile"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/preflight"
)

// kept is what the node needs to come up with nothing but its own disk: the accepted bundles,
// newest first, the keyIDs that are forgotten of all but the first, and which key each has.
type kept struct {
	bundles   bundles
	forgotten map[string]bool
	// keys are those that plugins named last when they were well, by keyID.
	keys map[string]seenKey
}

// seenKey is what is known of a KEK without its plugin: the hash of the key_id, and what was wrapped
// under it, for another plugin to open that takes the place.
type seenKey struct {
	KeyIDHash string            `json:"keyIDHash"`
	Sample    *preflight.Sample `json:"sample"`
}

func hashesOf(keys map[string]seenKey) map[string]string {
	all := map[string]string{}
	for keyID, key := range keys {
		all[keyID] = key.KeyIDHash
	}
	return all
}

// keptFile is the form on the disk, behind a line with its hash. The bundles have theirs too.
type keptFile struct {
	Format    int                 `json:"format"`
	Bundles   []map[string][]byte `json:"bundles"`
	Forgotten []string            `json:"forgotten,omitempty"`
	Keys      map[string]seenKey  `json:"seenKeys,omitempty"`
}

const (
	keptFormat = 1
	// maxKept is what is read at most: base64 has four characters for three bytes.
	maxKept = maxAccepted * 2 * bundle.MaxSize
)

// errDamaged says that what was kept is not what was written.
var errDamaged = errors.New("it is damaged")

// readKept reads what was kept, and is nothing if nothing was.
func readKept(path string) (kept, error) {
	none := kept{forgotten: map[string]bool{}}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxKept+1))
	if err != nil {
		return none, err
	}
	k, err := decodeKept(data)
	if err != nil {
		return none, fmt.Errorf("%w: %w: it is put aside when the next bundle is accepted; where none is, put the folder of bundles back", errDamaged, err)
	}
	return k, nil
}

func decodeKept(data []byte) (kept, error) {
	line, rest, found := bytes.Cut(data, []byte("\n"))
	if !found || len(data) > maxKept || hashed.Name(rest) != string(line) {
		return kept{}, errors.New("it does not have the hash that it was written with")
	}
	var f keptFile
	if err := json.Unmarshal(rest, &f); err != nil {
		return kept{}, errors.New("it is no JSON") // whose error may quote it
	}
	if f.Format != keptFormat || len(f.Bundles) > maxAccepted {
		return kept{}, fmt.Errorf("it has format %d and %d bundles, and %d and at most %d are known here", f.Format, len(f.Bundles), keptFormat, maxAccepted)
	}
	k := kept{forgotten: map[string]bool{}, keys: f.Keys}
	for _, encoded := range f.Bundles {
		b, err := bundle.Decode(encoded)
		if err != nil {
			return kept{}, err
		}
		k.bundles = append(k.bundles, b)
	}
	for keyID, key := range f.Keys {
		if key.Sample == nil {
			return kept{}, fmt.Errorf("of keyID %s it has no sample", keyID)
		}
	}
	for _, keyID := range f.Forgotten {
		k.forgotten[keyID] = true
	}
	return k, nil
}

// write makes it what is found after a crash.
func (k kept) write(path string) error {
	f := keptFile{Format: keptFormat, Keys: k.keys}
	for _, b := range k.bundles {
		f.Bundles = append(f.Bundles, b.Encode())
	}
	for keyID := range k.forgotten {
		f.Forgotten = append(f.Forgotten, keyID)
	}
	slices.Sort(f.Forgotten)
	rest, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return wholefile.Write(path, append([]byte(hashed.Name(rest)+"\n"), rest...))
}

// accepting is what is kept once a bundle is the first.
func (k kept) accepting(b *bundle.Bundle) kept {
	next := kept{bundles: append(bundles{b}, k.bundles...), forgotten: map[string]bool{}, keys: k.keys}
	for keyID := range k.forgotten {
		if !hasPlugin(b, keyID) {
			next.forgotten[keyID] = true
		}
	}
	return next.trimmed()
}

// forgetting is what is kept without a keyID that the first bundle does not have.
func (k kept) forgetting(keyID string) kept {
	next := kept{bundles: k.bundles, forgotten: map[string]bool{keyID: true}, keys: k.keys}
	for other := range k.forgotten {
		next.forgotten[other] = true
	}
	return next.trimmed()
}

// remembering is what is kept once the plugin of a keyID has named a key_id.
func (k kept) remembering(keyID string, key seenKey) kept {
	next := kept{bundles: k.bundles, forgotten: k.forgotten, keys: map[string]seenKey{}}
	maps.Copy(next.keys, k.keys)
	next.keys[keyID] = key
	return next
}

// trimmed leaves out the bundles that nothing is taken from: newer ones have all their keyIDs, or
// those are forgotten; and of those that are forgotten the ones that no bundle has.
func (k kept) trimmed() kept {
	next, seen := kept{forgotten: map[string]bool{}, keys: map[string]seenKey{}}, map[string]bool{}
	for i, b := range k.bundles {
		needed := i == 0
		for _, p := range b.Plugins() {
			keyID := p.KeyID().String()
			needed = needed || !seen[keyID] && !k.forgotten[keyID]
			seen[keyID] = true
		}
		if needed {
			next.bundles = append(next.bundles, b)
		}
	}
	for keyID := range k.forgotten {
		if slices.ContainsFunc(next.bundles, func(b *bundle.Bundle) bool { return hasPlugin(b, keyID) }) {
			next.forgotten[keyID] = true
		}
	}
	for keyID, key := range k.keys {
		if p := next.plugin(keyID); p != nil && !next.forgotten[keyID] {
			next.keys[keyID] = key
		}
	}
	return next
}

// wanted are what they ask for, newest first.
func (k kept) wanted() []Wanted {
	var all []Wanted
	for i, b := range k.bundles {
		forgotten := k.forgotten
		if i == 0 {
			forgotten = nil
		}
		all = append(all, k.bundles.wanted(b, forgotten, hashesOf(k.keys)))
	}
	return all
}

// plugin is what the newest bundle that has a keyID says of it, nil if none does.
func (k kept) plugin(keyID string) *bundle.Plugin {
	for _, b := range k.bundles {
		if p := pluginOf(b, keyID); p != nil {
			return p
		}
	}
	return nil
}

func pluginOf(b *bundle.Bundle, keyID string) *bundle.Plugin {
	id, err := bundle.ParseKeyID(keyID)
	if err != nil {
		return nil
	}
	return b.Plugin(id)
}

func hasPlugin(b *bundle.Bundle, keyID string) bool { return pluginOf(b, keyID) != nil }
