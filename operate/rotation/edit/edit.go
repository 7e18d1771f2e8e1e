// Package edit makes the three changes that a move from one provider to another makes
// to a file with an EncryptionConfiguration: the new provider is added, the two are
// swapped, and the old one is removed.
//
// A file comes in as bytes and goes out as bytes, and nothing is read or
// written. YAML stays YAML with its comments, except that those of a provider go
// where it goes; the layout becomes that of the encoder, once. A comment that
// cannot be kept, as in a list in brackets, is an error. JSON stays JSON.
// The same file and change always give the same bytes, so that the hash of what
// apiservers will have in effect is known before anything is written.
//
// Every result is read again and compared with the change that was meant. What
// else an EncryptionConfiguration must fulfil is for package config to check.
// Errors name providers and places, and never what stands in the file.
package edit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// addReader adds what is to be written with wherever the old one is, as the last one
// that is read with before identity: a key beside one of its kind, in the same
// provider. If an old KMS provider is used by several entries of the file there is an
// error, since the names of KMS providers have to be unique: give each entry a provider
// of its own first. An entry that is read with it already stays as it is, if that is
// identity.
func addReader(file []byte, r Replacement) ([]byte, error) {
	if err := r.New.check(); err != nil {
		return nil, err
	}
	return change(file, func(d *document) error {
		places, err := r.leaving(d)
		if err != nil {
			return err
		}
		for _, at := range places {
			_, there := d.in(at.entry, r.New.Name)
			if there && r.New.Name == rotation.Plain {
				continue
			}
			if there || !isKey(r.New.Name) && r.New.Name != rotation.Plain && len(d.find(r.New.Name)) > 0 {
				return fmt.Errorf("provider %q is there already: give the new one a name that was never used", r.New.Name)
			}
			if err := d.add(at, r.New); err != nil {
				return err
			}
		}
		return nil
	})
}

// leaving are the places of the old one where it writes, and of a KMS provider the one
// place that it has.
func (r Replacement) leaving(d *document) ([]place, error) {
	if kind, _ := kindIn(r.Old); kind == "kms" {
		at, err := d.only(r.Old)
		return []place{at}, err
	}
	all := slices.DeleteFunc(d.find(r.Old), func(at place) bool { return !at.writes() || r.Entry > 0 && at.entry != r.Entry-1 })
	if len(all) == 0 {
		return nil, fmt.Errorf("nothing is written with %q", r.Old)
	}
	for _, at := range all {
		for _, other := range d.find(r.Old) {
			if other.entry == at.entry && other != at {
				return nil, fmt.Errorf("%q is there twice, as %s and %s: take out the one that nothing is read with", r.Old, at, other)
			}
		}
	}
	return all, nil
}

// add puts a provider or a key behind those that are read with.
func (d *document) add(old place, p Provider) error {
	kind, _ := kindIn(p.Name)
	if with, _ := kindIn(d.nameAt(old)); isKey(p.Name) && with == kind {
		keys, err := d.listOf(old)
		if err != nil {
			return err
		}
		node, value := p.item(true)
		keys.insert(len(keys.values), node, value)
		return nil
	}
	old.key = -1
	providers, err := d.listOf(old)
	if err != nil {
		return err
	}
	node, value := p.item(false)
	providers.insert(d.lastReader(old), node, value)
	return nil
}

// swap exchanges the places of the old one and the new one, in every entry that has
// both. Where the old one was the first one and wrote, the new one does.
func swap(file []byte, r Replacement) ([]byte, error) {
	return change(file, func(d *document) error {
		return d.each(r, func(from, to place) error {
			if from.provider != to.provider { // not two keys of one provider
				from.key, to.key = -1, -1
			}
			l, err := d.listOf(from)
			if err != nil {
				return err
			}
			if from.key >= 0 {
				l.exchange(from.key, to.key)
			} else {
				l.exchange(from.provider, to.provider)
			}
			return nil
		})
	})
}

// swapBack is swap where the new one writes: else it was never swapped.
func swapBack(file []byte, r Replacement) ([]byte, error) {
	d, err := parse(file)
	if err != nil {
		return nil, err
	}
	err = d.each(r, func(_, to place) error {
		if !to.writes() {
			return fmt.Errorf("%q does not write in it (%s)", r.New.Name, to)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return swap(file, r)
}

// each does something for all entries that have the old one and the new one.
func (d *document) each(r Replacement, do func(from, to place) error) error {
	for _, name := range []string{r.Old, r.New.Name} {
		if kind, _ := kindIn(name); kind == "kms" {
			if _, err := d.only(name); err != nil {
				return err
			}
		}
	}
	found := d.find(r.Old)
	some := false
	for _, from := range found {
		to, both := d.in(from.entry, r.New.Name)
		if !both || r.Entry > 0 && from.entry != r.Entry-1 {
			continue
		}
		some = true
		if err := do(from, to); err != nil {
			return err
		}
	}
	switch to := d.find(r.New.Name); {
	case some:
		return nil
	case len(found) == 0 || len(to) == 0:
		return fmt.Errorf("there is no entry with both %q and %q", r.Old, r.New.Name)
	default:
		return fmt.Errorf("providers %q and %q are for different resources (%s and %s): they can only replace each other in one entry", r.Old, r.New.Name, found[0], to[0])
	}
}

// removeOld takes the old one away, with all its keys, where the new one writes.
func removeOld(file []byte, r Replacement) ([]byte, error) {
	return change(file, func(d *document) error {
		return d.each(r, func(from, to place) error {
			if from.provider == to.provider {
				for _, name := range append(slices.Clone(r.With), r.Old) {
					if at, there := d.in(from.entry, name); there && at.provider == to.provider {
						if err := d.remove(at); err != nil {
							return err
						}
					}
				}
				return nil
			}
			if err := d.goesWhole(from, r); err != nil {
				return err
			}
			from.key = -1
			return d.remove(from)
		})
	})
}

// goesWhole is an error if the provider at a place has a key that is not to go.
func (d *document) goesWhole(at place, r Replacement) error {
	for _, name := range d.namesAt(at) {
		if name != r.Old && !slices.Contains(r.With, name) {
			return fmt.Errorf("the provider at %s has a key more than it had: put the file back as it was", at)
		}
	}
	return nil
}

// removeNew takes the new one away again.
func removeNew(file []byte, r Replacement) ([]byte, error) {
	return change(file, func(d *document) error {
		return d.each(r, func(from, to place) error {
			if r.New.Name == rotation.Plain { // it may have been there before
				return nil
			}
			if from.provider != to.provider {
				to.key = -1
			}
			return d.remove(to)
		})
	})
}

// remove takes away what is at a place. The last one of a list cannot be.
func (d *document) remove(at place) error {
	l, err := d.listOf(at)
	if err != nil {
		return err
	}
	i := at.provider
	if at.key >= 0 {
		i = at.key
	}
	if len(l.values) == 1 {
		return fmt.Errorf("%q is the only one of its entry (%s): its resources could no longer be stored", d.nameAt(at), at)
	}
	d.gone = append(d.gone, l.remove(i)...)
	return nil
}

// change edits a file and proves that nothing else became of it.
func change(file []byte, edit func(*document) error) ([]byte, error) {
	d, err := parse(file)
	if err != nil {
		return nil, err
	}
	if err := edit(d); err != nil {
		return nil, fmt.Errorf("encryption configuration: %w", err)
	}
	out, err := d.encode()
	if err != nil {
		return nil, err
	}
	is, err := parse(out)
	if err != nil || !reflect.DeepEqual(d.meant, is.meant) {
		return nil, errors.New("encryption configuration: the change cannot be made without changing more: " +
			"write it without anchors, aliases and tags")
	}
	if line := d.lostComment(file, out); line > 0 {
		return nil, fmt.Errorf("encryption configuration: the comment in line %d cannot be kept: "+
			"write what it stands in without braces and brackets, or take it out", line)
	}
	return out, nil
}

// document is a file in two forms: the nodes, which keep comments, and plain
// values, which show what it means. Each change is made to both.
type document struct {
	root  *yaml.Node
	meant map[string]any
	json  bool
	// gone are the comments that went with a provider, line by line.
	gone []string
}

// Same reports whether two files say the same: they may be written otherwise, and have
// other comments.
func Same(a, b []byte) bool {
	one, err := parse(a)
	if err != nil {
		return false
	}
	other, err := parse(b)
	return err == nil && reflect.DeepEqual(one.meant, other.meant)
}

var errNoConfiguration = errors.New("encryption configuration: no list of resources with a list of providers in each: " +
	"atrest check says what is wrong with the file")

func parse(file []byte) (*document, error) {
	if len(file) > config.MaxSize {
		return nil, fmt.Errorf("encryption configuration: %d bytes long, at most %d are read", len(file), config.MaxSize)
	}
	d := &document{root: &yaml.Node{}, json: json.Valid(file)}
	in := yaml.NewDecoder(bytes.NewReader(file))
	// What the decoder says may quote the file, keys and all.
	if in.Decode(d.root) != nil || d.root.Decode(&d.meant) != nil {
		return nil, errors.New("encryption configuration: not YAML with a mapping: atrest check says what is wrong with the file")
	}
	if in.Decode(&yaml.Node{}) != io.EOF {
		return nil, errors.New("encryption configuration: more than one YAML document, of which the first counts: keep one")
	}
	if !d.wellFormed() {
		return nil, errNoConfiguration
	}
	return d, nil
}

// wellFormed reports whether both forms have the same entries and providers, so
// that a place in one is a place in the other.
func (d *document) wellFormed() bool {
	entries, ok := d.meant["resources"].([]any)
	nodes := field(d.root.Content[0], "resources")
	if !ok || nodes == nil || nodes.Kind != yaml.SequenceNode || len(nodes.Content) != len(entries) {
		return false
	}
	for i := range entries {
		entry, ok := entries[i].(map[string]any)
		if !ok {
			return false
		}
		providers, ok := entry["providers"].([]any)
		list := d.providers(i)
		if !ok || list == nil || list.Kind != yaml.SequenceNode || len(list.Content) != len(providers) {
			return false
		}
	}
	return true
}

// encode is the file again.
func (d *document) encode() ([]byte, error) {
	var out bytes.Buffer
	var err error
	if d.json {
		err = json.Indent(&out, append(appendJSON(nil, d.root.Content[0]), '\n'), "", "  ")
	} else {
		to := yaml.NewEncoder(&out)
		to.SetIndent(2)
		err = errors.Join(to.Encode(d.root), to.Close())
	}
	if err != nil { // which may quote the file
		return nil, errors.New("encryption configuration: cannot be written again")
	}
	return out.Bytes(), nil
}

// nameAt is the name of what is at a place.
func (d *document) nameAt(at place) string {
	names := d.namesAt(at)
	return names[max(at.key, 0)]
}

// namesAt are the names of the provider at a place, or of all its keys; at least one.
func (d *document) namesAt(at place) (all []string) {
	provider, _ := d.values(at.entry)[at.provider].(map[string]any)
	for kind, of := range provider {
		settings, _ := of.(map[string]any)
		keys, _ := settings["keys"].([]any)
		for _, key := range keys {
			key, _ := key.(map[string]any)
			all = append(all, fmt.Sprintf("%s:%v", kind, key["name"]))
		}
		if kind == "kms" {
			all = append(all, fmt.Sprint(settings["name"]))
		}
	}
	if len(all) == 0 {
		return []string{rotation.Plain}
	}
	return all
}

// lastReader is the index for a provider that is to be read with after those
// that are there, and before identity.
func (d *document) lastReader(old place) int {
	providers := d.values(old.entry)
	for j := old.provider + 1; j < len(providers); j++ {
		if p, ok := providers[j].(map[string]any); ok {
			if _, identity := p["identity"]; identity {
				return j
			}
		}
	}
	return len(providers)
}

// values are the providers of an entry, as plain values.
func (d *document) values(entry int) []any {
	return d.meant["resources"].([]any)[entry].(map[string]any)["providers"].([]any)
}

func (d *document) setValues(entry int, providers []any) {
	d.meant["resources"].([]any)[entry].(map[string]any)["providers"] = providers
}

// providers is the same as values, as a node; nil if there is none.
func (d *document) providers(entry int) *yaml.Node {
	return field(field(d.root.Content[0], "resources").Content[entry], "providers")
}
