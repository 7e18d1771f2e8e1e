package edit

import (
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kube-atrest/atrest/operate/rotation"
)

// Provider is what is to be written with.
type Provider struct {
	// Name is that of a KMS provider, which becomes part of every value that it
	// stores: no other may have it, and none may ever have had it with another key. Or
	// it is the kind and the name of a key, as in aescbc:key1, or [rotation.Plain].
	Name string
	// Endpoint of a KMS provider is as in unix:///path/to/the.sock.
	Endpoint string
	// Timeout bounds a call of a KMS provider; the default of kube-apiserver if it is zero.
	Timeout time.Duration
	// V1 is a plugin of KMS v1, else it is one of v2.
	V1 bool
	// Secret gives a key. It is a function so that no text shows it.
	Secret func() []byte
	// settings are those that a file has for it already, see As.
	settings map[string]any
}

// As is a KMS provider with all settings that a file has for one of that name, version
// and endpoint, if they are others than it would get: it may have been written by others, with a cachesize or a
// timeout of its own, or have no version, as of KMS v1.
func (p Provider) As(file []byte) Provider {
	kind, _ := kindIn(p.Name)
	d, err := parse(file)
	if kind != "kms" || err != nil {
		return p
	}
	for _, at := range d.find(p.Name) {
		has, _ := d.values(at.entry)[at.provider].(map[string]any)[kind].(map[string]any)
		if _, own := p.item(false); reflect.DeepEqual(own, map[string]any{kind: has}) {
			continue
		}
		version := has["apiVersion"]
		if v1 := version == nil || version == "v1"; v1 == p.V1 && (v1 || version == "v2") && has["endpoint"] == p.Endpoint {
			p.settings = has
		}
	}
	return p
}

// kindIn is the kind of provider that a name is of, and the name of the key.
func kindIn(name string) (kind, key string) {
	kind, key, local := rotation.Local(name)
	if !local {
		return "kms", ""
	}
	return kind, key
}

// isKey reports whether a name is that of a key in the file.
func isKey(name string) bool {
	kind, _ := kindIn(name)
	return kind != "kms" && name != rotation.Plain
}

// check tells what is missing to add it.
func (p Provider) check() error {
	kind, key := kindIn(p.Name)
	switch {
	case kind == "kms" && (p.Name == "" || p.Endpoint == "" || p.Timeout < 0):
		return fmt.Errorf("provider %q cannot be added: it needs a name, an endpoint and no negative timeout", p.Name)
	case isKey(p.Name) && (key == "" || p.Secret == nil):
		return fmt.Errorf("provider %q cannot be added: its key has no name, or is in no configuration any more", p.Name)
	}
	return nil
}

// item is the key or the provider, as a node and as a plain value.
func (p Provider) item(key bool) (*yaml.Node, any) {
	kind, name := kindIn(p.Name)
	switch {
	case p.settings != nil:
		node := &yaml.Node{}
		_ = node.Encode(p.settings) // which was YAML
		return mapping(text(kind), node), map[string]any{kind: maps.Clone(p.settings)}
	case kind == "kms":
		fields := []string{"apiVersion", "v2", "name", p.Name, "endpoint", p.Endpoint}
		if p.V1 {
			fields[1] = "v1"
		}
		if p.Timeout > 0 {
			fields = append(fields, "timeout", p.Timeout.String())
		}
		values := map[string]any{}
		for i := 0; i < len(fields); i += 2 {
			values[fields[i]] = fields[i+1]
		}
		return mapping(text(kind), mapping(texts(fields)...)), map[string]any{kind: values}
	case p.Name == rotation.Plain:
		return mapping(text(kind), mapping()), map[string]any{kind: map[string]any{}}
	}
	secret := base64.StdEncoding.EncodeToString(p.Secret())
	node, value := mapping(texts([]string{"name", name, "secret", secret})...), any(map[string]any{"name": name, "secret": secret})
	if key {
		return node, value
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{node}}
	return mapping(text(kind), mapping(text("keys"), list)), map[string]any{kind: map[string]any{"keys": []any{value}}}
}

// place is where a provider is, and which of its keys it is, or -1.
type place struct{ entry, provider, key int }

// String is the place as errors about a configuration name it.
func (p place) String() string {
	s := fmt.Sprintf("resources[%d].providers[%d]", p.entry, p.provider)
	if p.key >= 0 {
		s += fmt.Sprintf(".keys[%d]", p.key)
	}
	return s
}

// writes reports whether what is there is what its entry is written with.
func (p place) writes() bool { return p.provider == 0 && p.key <= 0 }

// find lists the places of a provider or key of that name.
func (d *document) find(name string) []place {
	kind, key := kindIn(name)
	var all []place
	for i := range d.meant["resources"].([]any) {
		for j, provider := range d.values(i) {
			provider, _ := provider.(map[string]any)
			of, there := provider[kind]
			settings, _ := of.(map[string]any)
			switch {
			case kind == "kms" && settings["name"] == name, name == rotation.Plain && there:
				all = append(all, place{i, j, -1})
			case isKey(name):
				keys, _ := settings["keys"].([]any)
				for k, has := range keys {
					if has, _ := has.(map[string]any); has["name"] == key {
						all = append(all, place{i, j, k})
					}
				}
			}
		}
	}
	return all
}

// in is the place of a provider in an entry.
func (d *document) in(entry int, name string) (place, bool) {
	for _, at := range d.find(name) {
		if at.entry == entry {
			return at, true
		}
	}
	return place{}, false
}

// only is the one place of a KMS provider.
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

// list is a list of the file, of providers or of keys, in both its forms.
type list struct {
	node   *yaml.Node
	values []any
	set    func([]any)
}

// listOf is the list that a place is in.
func (d *document) listOf(at place) (list, error) {
	providers := list{d.providers(at.entry), d.values(at.entry), func(v []any) { d.setValues(at.entry, v) }}
	if at.key < 0 {
		return providers, nil
	}
	node := providers.node.Content[at.provider]
	for kind, of := range providers.values[at.provider].(map[string]any) {
		settings, _ := of.(map[string]any)
		keys, _ := settings["keys"].([]any)
		nodes := field(node, kind)
		if nodes != nil {
			nodes = field(nodes, "keys")
		}
		if nodes != nil && nodes.Kind == yaml.SequenceNode && len(nodes.Content) == len(keys) && len(keys) > 0 {
			return list{nodes, keys, func(v []any) { settings["keys"] = v }}, nil
		}
	}
	return list{}, fmt.Errorf("the keys at %s are not written out: write them without anchors and aliases", at)
}

func (l list) insert(at int, node *yaml.Node, value any) {
	l.node.Content = slices.Insert(l.node.Content, at, node)
	l.set(slices.Insert(l.values, at, value))
}

func (l list) exchange(i, j int) {
	l.node.Content[i], l.node.Content[j] = l.node.Content[j], l.node.Content[i]
	l.values[i], l.values[j] = l.values[j], l.values[i]
}

// remove lists the comments that go with it.
func (l list) remove(i int) (gone []string) {
	gone = withoutComments(l.node.Content, i)
	l.node.Content = slices.Delete(l.node.Content, i, i+1)
	l.set(slices.Delete(l.values, i, i+1))
	return gone
}
