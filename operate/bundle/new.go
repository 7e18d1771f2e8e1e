package bundle

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/internal/redact"
)

// maxSalt is the longest salt, in bytes.
const maxSalt = 64

// New checks a draft and makes the bundle. The error, if any, is an [*Error] that lists
// everything found. The draft is not kept.
func New(d Draft) (*Bundle, error) {
	var found problems
	if d.Revision == 0 {
		found.addf("it has no revision: count from 1 on")
	}
	if len(d.Salt) > maxSalt {
		found.addf("its salt has %d bytes, and at most %d are allowed", len(d.Salt), maxSalt)
	}
	if len(d.Plugins) > MaxPlugins {
		found.addf("it has %d plugins, and at most %d are allowed", len(d.Plugins), MaxPlugins)
		return nil, found.err()
	}
	b := &Bundle{As: "bundle", revision: d.Revision, salt: bytes.Clone(d.Salt), raw: bytes.Clone(d.EncryptionConfig)}
	var err error
	b.config, err = config.Parse(b.raw, config.Options{File: configName, Reload: true})
	found.add(err)
	b.plugins = newPlugins(d.Plugins, &found)
	if b.config != nil {
		b.folder = matchSockets(b.config, b.plugins, &found)
	}
	if size := b.size(); size > MaxSize {
		found.addf("it has %d bytes, and at most %d fit into a Secret: take away plugins that no apiserver uses", size, MaxSize)
	}
	if len(found) > 0 {
		return nil, found.err()
	}
	b.hash = hashOf(b.salt, b.contents())
	return b, nil
}

// newPlugins are those of a draft that are well, in the order of their keyIDs, each once.
func newPlugins(drafts []DraftPlugin, found *problems) []*Plugin {
	byID := map[KeyID]*Plugin{}
	for _, d := range drafts {
		p, err := newPlugin(d)
		if err != nil {
			found.addf("plugin %s: %w", d.KeyID, err)
		}
		if p == nil {
			continue
		}
		if other, twice := byID[d.KeyID]; twice && !other.equal(p) {
			found.addf("plugin %s is there twice, and not the same both times: a keyID stands for one plugin; give the other one a keyID of its own", d.KeyID)
			continue
		}
		byID[d.KeyID] = p
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b *Plugin) int { return cmp.Compare(a.id, b.id) })
}

// newPlugin gives a plugin with an error, too, where its keyID is known to be one: then
// its socket is not missed besides.
func newPlugin(d DraftPlugin) (*Plugin, error) {
	if d.KeyID == 0 {
		return nil, errors.New("a keyID is a number from 1 on")
	}
	p := &Plugin{As: redact.As("plugin " + d.KeyID.String()), id: d.KeyID, raw: bytes.Clone(d.Settings), parts: map[Part][]byte{}}
	if len(p.raw) == 0 {
		return p, fmt.Errorf("it has no settings, %s%s", settingsPrefix, p.id)
	}
	settings, err := ParseSettings(p.raw)
	if err != nil {
		return p, err
	}
	p.settings = settings
	for part, content := range d.Parts {
		p.parts[part] = bytes.Clone(content)
	}
	return p, p.checkParts()
}

// checkParts is an error unless the plugin has exactly the files that it needs.
func (p *Plugin) checkParts() error {
	var errs []error
	needs := p.settings.Parts()
	for _, part := range needs {
		content, ok := p.parts[part]
		switch err := part.check(p.id); {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", part, err))
		case !ok:
			errs = append(errs, fmt.Errorf("%s is missing, and its settings name it", part))
		case len(content) == 0:
			errs = append(errs, fmt.Errorf("%s is empty", part))
		default:
			errs = append(errs, p.checkUnexposed(part, content))
		}
	}
	for _, part := range p.Parts() {
		if !slices.Contains(needs, part) {
			errs = append(errs, fmt.Errorf("%s is there, and its settings do not need it: take it away, so that the node has no more than it needs", part))
		}
	}
	return join(errs...)
}

// minExposed is the shortest credential that is looked for in arguments, in bytes: what
// is shorter, such as a PIN of four digits, may be there by chance.
const minExposed = 16

// checkUnexposed is an error if an argument holds a credential: everybody on the node sees those.
func (p *Plugin) checkUnexposed(part Part, content []byte) error {
	content = bytes.TrimSpace(content)
	if k := p.settings.PKCS11; k != nil && k.Pin != "" && k.Pin == string(content) {
		return fmt.Errorf("pkcs11.pin has the content of %s, for everybody to see: it is the ID of a version of the key, and seldom needed: take it away", part)
	}
	if p.settings.Backend() != BackendCommand || part.Source != Secret || len(content) < minExposed {
		return nil
	}
	for _, argument := range p.settings.Command.Arguments {
		if bytes.Contains([]byte(argument), content) {
			return fmt.Errorf("an argument has the content of %s in it, for everybody to see: name the part's file", part)
		}
	}
	return nil
}

func (p *Plugin) equal(q *Plugin) bool {
	return p.id == q.id && bytes.Equal(p.raw, q.raw) && maps.EqualFunc(p.parts, q.parts, bytes.Equal)
}
