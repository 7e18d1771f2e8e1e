package node

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/internal/hashed"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// bundles are those that something is wanted by, newest first: the candidate, if there is one,
// before the accepted. A credential in the newest is for all plugins of the same provider.
type bundles []*bundle.Bundle

// nameOf names a bundle: another revision with the same content is another one.
func nameOf(b *bundle.Bundle) string { return fmt.Sprintf("%d/%s", b.Revision(), b.Hash()) }

// wanted is what one of them asks for, but for the keyIDs that are forgotten.
func (all bundles) wanted(b *bundle.Bundle, forgotten map[string]bool, expected map[string]string) Wanted {
	w := Wanted{Hash: nameOf(b), Revision: b.Revision(), Config: b.Configuration().Hash(), Keys: map[string]Key{}}
	for _, p := range b.Plugins() {
		keyID := p.KeyID().String()
		if !forgotten[keyID] {
			w.Keys[keyID] = Key{Settings: settingsOf(p), Files: all.filesHash(p), KeyIDHash: expected[keyID]}
		}
	}
	return w
}

// settingsOf names what a plugin is started with: its program, its arguments, and which files it
// has, but not what is in them. Of one of somebody else's that too: nobody knows whether it reads them again,
// or whether they say which KEK it is.
func settingsOf(p *bundle.Plugin) string {
	text, err := json.Marshal(p.Settings())
	if err != nil { // it was read from such a text
		text = []byte(err.Error())
	}
	parts := [][]byte{text}
	for _, part := range p.Parts() {
		parts = append(parts, []byte(part.FileName(p.KeyID())))
		if p.Settings().Backend() == bundle.BackendCommand {
			parts = append(parts, p.Content(part))
		}
	}
	return hashed.Name(joined(parts...))
}

// joined is a text that no other parts give.
func joined(parts ...[]byte) []byte {
	var all []byte
	for _, part := range parts {
		all = binary.BigEndian.AppendUint64(all, uint64(len(part)))
		all = append(all, part...)
	}
	return all
}

// files are those of a plugin, by name. What the newest keyID of the same provider has in the
// newest bundle, all keyIDs of it have: the former secret-id may be revoked by now.
func (all bundles) files(p *bundle.Plugin) map[string][]byte {
	files := map[string][]byte{}
	for _, part := range p.Parts() {
		files[part.FileName(p.KeyID())] = all.newest(p, part)
	}
	return files
}

func (all bundles) newest(p *bundle.Plugin, part bundle.Part) []byte {
	provider := providerOf(p)
	for _, b := range all {
		plugins := b.Plugins()
		slices.SortFunc(plugins, func(a, b *bundle.Plugin) int { return cmp.Compare(b.KeyID(), a.KeyID()) })
		for _, q := range plugins {
			if slices.Contains(q.Parts(), part) && providerOf(q) == provider {
				return q.Content(part)
			}
		}
	}
	return p.Content(part)
}

func (all bundles) filesHash(p *bundle.Plugin) string {
	files := all.files(p)
	var parts [][]byte
	for _, name := range slices.Sorted(maps.Keys(files)) {
		parts = append(parts, []byte(name), files[name])
	}
	return hashed.Name(joined(parts...))
}

// providerOf names where a plugin logs in and as whom. Plugins of other programs share nothing
// that is known here, but with themselves.
func providerOf(p *bundle.Plugin) string {
	s := p.Settings()
	switch {
	case s.Vault != nil:
		v := *s.Vault
		login, _ := json.Marshal(v.Auth)
		return strings.Join([]string{"vault", strings.TrimRight(v.Address, "/"), cmp.Or(v.AuthNamespace, v.Namespace), string(login)}, "\x00")
	case s.PKCS11 != nil:
		return strings.Join([]string{"pkcs11", s.PKCS11.Module, s.PKCS11.Token, s.PKCS11.TokenSerial}, "\x00")
	}
	return "keyID " + p.KeyID().String()
}
