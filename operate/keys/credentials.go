package keys

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/kube-atrest/atrest/operate/bundle"
)

// credentials gives the key that another one takes the place of what reaches its KMS by
// now, where that is the one of the other: a Vault that moved, a secret that was renamed or
// replaced is so for each key there.
func (m *machine) credentials(head *Record) bool {
	w := m.ring.writer()
	if !head.moving() || !w.encrypts() || w.Mode != KMS || head.Mode != KMS {
		return false
	}
	next, err := w.Plugin.reachedLike(head.Plugin, m.in.Desired.Plugin)
	if err != nil || next.equal(w.Plugin) {
		return false
	}
	r := *w
	r.Plugin = next
	if r.whole() != nil {
		return false
	}
	m.put(Update, &r, UpdatedInPlace, "the KMS is reached another way by now")
	return true
}

// reachedLike is the plugin with what another one has of its KMS by now: the content of the
// files of one name and, where both were at one Vault, all of where it is and how to log in.
func (p *Plugin) reachedLike(was, is *Plugin) (*Plugin, error) {
	var all [3]*bundle.Settings
	for i, text := range [][]byte{p.Settings, was.Settings, is.Settings} {
		var err error
		if all[i], err = bundle.ParseSettings(text); err != nil {
			return nil, err
		}
	}
	own, next := all[0], p.clone()
	if a, b, c := own.Vault, all[1].Vault, all[2].Vault; a != nil && b != nil && c != nil && placeOf(a) == placeOf(b) {
		vault := *c
		vault.KeyPath, vault.KeyVersion, vault.Serving = a.KeyPath, a.KeyVersion, a.Serving
		if !reflect.DeepEqual(&vault, a) {
			own.Vault = &vault
			next.Settings, _ = json.Marshal(own) // which came from there
		}
	}
	next.Parts = map[bundle.Part][]byte{}
	for _, part := range own.Parts() {
		if content, now := is.Parts[part]; now {
			next.Parts[part] = bytes.Clone(content)
		} else if content, had := p.Parts[part]; had {
			next.Parts[part] = bytes.Clone(content)
		}
	}
	return next, nil
}

// placeOf is the Vault and the login that a key is reached by.
func placeOf(v *bundle.Vault) [4]string {
	return [4]string{v.Address, v.Namespace, v.AuthNamespace, v.Auth.Mount}
}
