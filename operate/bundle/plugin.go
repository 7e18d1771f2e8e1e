package bundle

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"github.com/kube-atrest/atrest/internal/redact"
)

// Plugin is what one keyID's plugin is run with. It is read-only and safe for
// concurrent use; what it hands out are copies.
type Plugin struct {
	redact.As // it holds credentials
	id        KeyID
	raw       []byte
	settings  *Settings
	parts     map[Part][]byte
}

// KeyID is its number.
func (p *Plugin) KeyID() KeyID { return p.id }

// Settings are read-only.
func (p *Plugin) Settings() *Settings { return p.settings }

// Parts are the names of its files, sorted.
func (p *Plugin) Parts() []Part {
	return slices.SortedFunc(maps.Keys(p.parts), func(a, b Part) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
}

// Content is a copy of what is in a file of [Plugin.Parts], nil for any other.
func (p *Plugin) Content(part Part) []byte { return bytes.Clone(p.parts[part]) }

// Arguments are what its program is given, without the program's own name: of
// atrest-kms-plugin for a back end of ours, to which flags such as --instance may be
// added, or those of the command. None holds a credential.
func (p *Plugin) Arguments(at Place) []string { return p.settings.arguments(p.id, at) }
