// Package edit makes the three changes that a rotation with two KMS plugins
// makes to a file with an EncryptionConfiguration: the new provider is added, the two
// are swapped, and the old one is removed.
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
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kube-atrest/atrest/config"
)

// Plugin is a KMS v2 provider to be added.
type Plugin struct {
	// Name becomes part of every value that the provider stores. No other
	// provider may have it, and none may ever have had it with another key.
	Name string
	// Endpoint is as in unix:///path/to/the.sock.
	Endpoint string
	// Timeout bounds a call; the default of kube-apiserver if it is zero.
	Timeout time.Duration
}

// addReader adds the plugin p wherever the provider old is, as the last one that
// is read with before identity. If old is used by several entries of the file
// there is an error, since the names of providers have to be unique: give each
// entry a provider of its own first.
func addReader(file []byte, old string, p Plugin) ([]byte, error) {
	if p.Name == "" || p.Endpoint == "" || p.Timeout < 0 {
		return nil, fmt.Errorf("provider %q cannot be added: it needs a name, an endpoint and no negative timeout", p.Name)
	}
	return change(file, func(d *document) error {
		if len(d.find(p.Name)) > 0 {
			return fmt.Errorf("provider %q is there already: give the new one a name that was never used", p.Name)
		}
		at, err := d.only(old)
		if err != nil {
			return err
		}
		d.insert(at.entry, d.lastReader(at), p)
		return nil
	})
}

// swap exchanges the places of the providers old and new. Where old was the
// first one and wrote, new does.
func swap(file []byte, old, new string) ([]byte, error) {
	return change(file, func(d *document) error {
		from, err := d.only(old)
		if err != nil {
			return err
		}
		to, err := d.only(new)
		if err != nil {
			return err
		}
		if from.entry != to.entry {
			return fmt.Errorf("providers %q and %q are for different resources (%s and %s): they can only replace each other in one entry", old, new, from, to)
		}
		d.exchange(from.entry, from.provider, to.provider)
		return nil
	})
}

// remove takes a provider away. The last one of an entry cannot be.
func remove(file []byte, name string) ([]byte, error) {
	return change(file, func(d *document) error {
		at, err := d.only(name)
		if err != nil {
			return err
		}
		if len(d.providers(at.entry).Content) == 1 {
			return fmt.Errorf("provider %q is the only one of its entry (%s): its resources could no longer be stored", name, at)
		}
		d.remove(at.entry, at.provider)
		return nil
	})
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

// place is where a provider is.
type place struct{ entry, provider int }

// String is the place as errors about a configuration name it.
func (p place) String() string {
	return fmt.Sprintf("resources[%d].providers[%d]", p.entry, p.provider)
}

// find lists the places of the KMS provider of that name.
func (d *document) find(name string) []place {
	var all []place
	for i := range d.meant["resources"].([]any) {
		for j, provider := range d.values(i) {
			if kms, ok := kindOf(provider, "kms").(map[string]any); ok && kms["name"] == name {
				all = append(all, place{i, j})
			}
		}
	}
	return all
}

// only is the one place of a provider.
func (d *document) only(name string) (place, error) {
	switch all := d.find(name); len(all) {
	case 0:
		return place{}, fmt.Errorf("there is no KMS provider %q: name one that the file has", name)
	case 1:
		return all[0], nil
	default:
		return place{}, fmt.Errorf("provider %q is in %d places (%s, %s): names have to be unique, join the entries or rename one that has stored nothing",
			name, len(all), all[0], all[1])
	}
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

func kindOf(provider any, kind string) any {
	p, _ := provider.(map[string]any)
	return p[kind]
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

func (d *document) insert(entry, at int, p Plugin) {
	kms := map[string]any{"apiVersion": "v2", "name": p.Name, "endpoint": p.Endpoint}
	fields := []string{"apiVersion", "v2", "name", p.Name, "endpoint", p.Endpoint}
	if p.Timeout > 0 {
		kms["timeout"] = p.Timeout.String()
		fields = append(fields, "timeout", p.Timeout.String())
	}
	list := d.providers(entry)
	list.Content = slices.Insert(list.Content, at, mapping(text("kms"), mapping(texts(fields)...)))
	d.setValues(entry, slices.Insert(d.values(entry), at, any(map[string]any{"kms": kms})))
}

func (d *document) exchange(entry, i, j int) {
	for _, list := range []any{d.providers(entry).Content, d.values(entry)} {
		reflect.Swapper(list)(i, j)
	}
}

func (d *document) remove(entry, i int) {
	list := d.providers(entry)
	d.gone = withoutComments(list.Content, i)
	list.Content = slices.Delete(list.Content, i, i+1)
	d.setValues(entry, slices.Delete(d.values(entry), i, i+1))
}
