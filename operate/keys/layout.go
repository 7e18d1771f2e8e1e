package keys

import (
	"encoding/json"
	"slices"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/internal/redact"
	"github.com/kube-atrest/atrest/operate/bundle"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// SocketFolder is where the plugins of a node have their sockets.
const SocketFolder = "/var/run/kmsplugin"

// Provider is a place in a configuration: what is first writes. KeyID 0 is identity.
type Provider struct {
	Name  string
	KeyID bundle.KeyID
	Mode  Mode
	of    *Record // nil for identity
}

// Entry has the providers of a resource, in their order.
type Entry struct {
	Resource  string
	Providers []Provider
}

// Config is what one apiserver is to have: the providers, the file, and all that its node
// needs for it. It holds keys and credentials.
type Config struct {
	redact.As
	Entries []Entry
	// Hash is that of the file, as [rotation.Instance] has it.
	Hash string
	text []byte
}

// configOf is what has these entries. Of a stage on the way between two that are at rest
// it differs from those in any case, so that what is in effect tells how far a move is.
func configOf(entries []Entry, on rotation.Stage) Config {
	text := textOf(entries, on)
	return Config{As: "configuration", Entries: entries, Hash: hashed.Name(text), text: text}
}

// nothing is the configuration before there is a key, and after the last one.
func nothing() Config { return configOf([]Entry{reading("secrets", true)}, "") }

// atRest is the configuration in which a key is in use, and nothing else but identity.
func (r *Record) atRest(resources []string, strict bool) Config {
	if !r.encrypts() {
		return nothing()
	}
	return configOf(entries(resources, !strict, r), "")
}

// entries are alike for all resources.
func entries(resources []string, plain bool, records ...*Record) (all []Entry) {
	for _, resource := range resources {
		all = append(all, reading(resource, plain, records...))
	}
	return all
}

// reading has the providers of a resource in their order, without those that are none, and
// with identity at the end if that is wanted and it is not there.
func reading(resource string, plain bool, records ...*Record) Entry {
	e := Entry{Resource: resource}
	if plain {
		records = slices.Concat(records, []*Record{nil})
	}
	for _, r := range records {
		p := Provider{Name: r.name(resource), Mode: Identity}
		if r.encrypts() {
			p.KeyID, p.Mode, p.of = r.ID, r.Mode, r
		}
		if !slices.ContainsFunc(e.Providers, func(other Provider) bool { return other.KeyID == p.KeyID }) {
			e.Providers = append(e.Providers, p)
		}
	}
	return e
}

// name is what the values are stored with that a key wrote for a resource. A provider has
// one resource, so that a count tells of each by itself.
func (r *Record) name(resource string) string {
	switch {
	case !r.encrypts():
		return rotation.Plain
	case r.Mode == KMS:
		return r.ID.String() + "_" + resource
	}
	return string(r.Mode) + ":" + r.ID.String() + "_" + resource
}

func names(r *Record, resources []string) []string {
	var all []string
	for _, resource := range resources {
		all = append(all, r.name(resource))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// The form of an EncryptionConfiguration.
type (
	fileForm struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Resources  []resourceForm `json:"resources"`
	}
	resourceForm struct {
		Resources []string       `json:"resources"`
		Providers []providerForm `json:"providers"`
	}
	providerForm struct {
		KMS       *kmsForm  `json:"kms,omitempty"`
		AESCBC    *keysForm `json:"aescbc,omitempty"`
		AESGCM    *keysForm `json:"aesgcm,omitempty"`
		Secretbox *keysForm `json:"secretbox,omitempty"`
		Identity  *struct{} `json:"identity,omitempty"`
	}
	kmsForm struct {
		APIVersion string `json:"apiVersion"`
		Name       string `json:"name"`
		Endpoint   string `json:"endpoint"`
		Timeout    string `json:"timeout"`
	}
	keysForm struct {
		Keys []keyForm `json:"keys"`
	}
	keyForm struct {
		Name   string `json:"name"`
		Secret []byte `json:"secret"`
	}
)

func (r *Record) form(resource string) providerForm {
	if !r.encrypts() {
		return providerForm{Identity: &struct{}{}}
	}
	name := r.ID.String() + "_" + resource
	own := &keysForm{Keys: []keyForm{{name, r.Key}}}
	switch r.Mode {
	case AESCBC:
		return providerForm{AESCBC: own}
	case AESGCM:
		return providerForm{AESGCM: own}
	case Secretbox:
		return providerForm{Secretbox: own}
	default:
		return providerForm{KMS: r.kms(name)}
	}
}

func (r *Record) kms(name string) *kmsForm {
	return &kmsForm{"v2", name, "unix://" + SocketFolder + "/" + r.ID.Socket(), r.Plugin.timeout().String()}
}

// textOf is the file. The same configuration always has the same bytes.
func textOf(entries []Entry, on rotation.Stage) []byte {
	f := fileForm{APIVersion: "apiserver.config.k8s.io/v1", Kind: "EncryptionConfiguration"}
	for _, e := range entries {
		form := resourceForm{Resources: []string{e.Resource}}
		for _, p := range e.Providers {
			form.Providers = append(form.Providers, p.of.form(e.Resource))
		}
		f.Resources = append(f.Resources, form)
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // of strings and bytes
	}
	head := "# Written by atrest, as are the next ones: what is changed here is lost.\n"
	if on != "" {
		head = "# Written by atrest on the way to the next one (" + string(on) + "): what is changed here is lost.\n"
	}
	return append([]byte(head), append(text, '\n')...)
}

// Draft is the bundle of a node with this configuration; see [bundle.Draft].
func (c Config) Draft(revision uint64, salt []byte) bundle.Draft {
	d := bundle.Draft{As: "bundle", Revision: revision, Salt: salt, EncryptionConfig: c.text}
	for _, e := range c.Entries {
		for _, p := range e.Providers {
			if p.Mode == KMS { // a plugin that is there more than once is one
				d.Plugins = append(d.Plugins, bundle.DraftPlugin{As: "plugin", KeyID: p.KeyID, Settings: p.of.Plugin.Settings, Parts: p.of.Plugin.Parts})
			}
		}
	}
	return d
}
