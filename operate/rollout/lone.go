package rollout

import (
	"context"
	"fmt"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/preflight"
	"github.com/kube-atrest/atrest/operate/rotation"
	"github.com/kube-atrest/atrest/operate/rotation/edit"
)

// alone asks the plugin that an apiserver writes with to encrypt and decrypt, if it is
// the only one: kube-apiserver has what it wrote in memory, and another one, that would
// have to ask the plugin, is not there. One of this project asks it itself.
func (w *world) alone(ctx context.Context, apiserver string, f audit.Form) error {
	if w.rotation.Checked || !f.Kind.IsKMS() || w.seen[apiserver].Process != "" {
		return nil
	}
	c := w.found.parsed[apiserver]
	if last, _, err := w.rotation.Kind.last(apiserver, w.found); err == nil && has(last, f.Name) {
		c = last
	}
	return preflight.Alone(ctx, c, apiserver, f.Name, f.KeyIDHash)
}

// decrypts asks the plugin that is to be written with before anything is changed. Of
// several apiservers each tells how it finds its own, but for KMS v1: one asks that only
// while it writes with it.
func (r *Rotation) decrypts(ctx context.Context, found configurations) error {
	if r.Checked {
		return nil
	}
	if m, ok := r.Kind.(Move); ok && m.Keyless && !m.Local && m.Back == nil && len(r.Apiservers) > 1 {
		return fmt.Errorf("no apiserver asks a plugin of KMS v1 before it writes with it: see that the one of %s is up and decrypts, with atrest check of a file with it on the machine of each apiserver, and say --plugin-checked", quoted(m.To))
	}
	if len(r.Apiservers) != 1 {
		return nil
	}
	apiserver := r.Apiservers[0]
	c, names, err := r.Kind.last(apiserver, found)
	if err != nil { // the file is none of a rotation that has begun, which is waited for
		return nil
	}
	for _, name := range names {
		if rotation.IsLocal(name) {
			continue
		}
		if err := preflight.Alone(ctx, c, apiserver, name, ""); err != nil {
			return err
		}
	}
	return nil
}

// last is the configuration at the end, and the providers that it is written with.
func (k Move) last(apiserver string, found configurations) (*config.Configuration, []string, error) {
	file, c := found.files[apiserver], found.parsed[apiserver]
	if k.Back == nil && isLast(file, k.Changes(apiserver)) {
		return c, k.To, nil
	}
	before, err := beforeOf(file, k.Changes(apiserver))
	if k.Back != nil { // the file is that before where nothing leads there
		c, err = configurationOf(before, "")
		return c, k.Back.With, err
	}
	if err != nil {
		return nil, nil, err
	}
	next, err := edit.Advance(before, rotation.Before, rotation.Removed, k.Changes(apiserver)...)
	if err != nil {
		return nil, nil, err
	}
	c, err = configurationOf(next, "")
	return c, k.To, err
}

func (k OnePlugin) last(apiserver string, found configurations) (*config.Configuration, []string, error) {
	return found.parsed[apiserver], k.Providers, nil
}
