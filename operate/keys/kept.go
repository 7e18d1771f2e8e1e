package keys

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/bundle"
)

// Kept are the records of the keys in a bundle that was made of a [Config], as far as it
// has them: not how far the way to them is. They are for [Input], to put back one that is
// gone. A bundle of anybody else is an error.
func Kept(b *bundle.Bundle) ([]Record, error) {
	found := map[bundle.KeyID]*Record{}
	for _, rule := range b.Configuration().Rules() {
		plain := slices.ContainsFunc(rule.Providers, func(p *config.Provider) bool { return p.Kind() == config.Identity })
		for _, p := range rule.Providers {
			if p.Kind() == config.Identity {
				continue
			}
			r, err := keptOf(p, b)
			if err != nil {
				return nil, fmt.Errorf("bundle %s: %w", b.Hash(), err)
			}
			if found[r.ID] == nil {
				found[r.ID] = r
			}
			found[r.ID].Resources, found[r.ID].Strict = append(found[r.ID].Resources, rule.Name()), !plain
		}
	}
	var all []Record
	for _, id := range slices.Sorted(maps.Keys(found)) {
		slices.Sort(found[id].Resources)
		all = append(all, *found[id])
	}
	return all, nil
}

// keptOf is the key of one provider.
func keptOf(p *config.Provider, b *bundle.Bundle) (*Record, error) {
	r := &Record{As: "key", Mode: KMS}
	name := p.KMS().Name
	if all := p.Keys(); len(all) == 1 {
		r.Mode, r.Key, name = Mode(p.Kind()), all[0].Secret(), all[0].Name
	}
	digits, _, _ := strings.Cut(name, "_")
	id, err := bundle.ParseKeyID(digits)
	plugin := b.Plugin(id)
	if err != nil || r.Mode == KMS && plugin == nil || r.Mode.local() && len(r.Key) != KeySize {
		return nil, fmt.Errorf("%s was not made here", p)
	}
	if r.ID = id; r.Mode != KMS {
		return r, nil
	}
	r.Plugin = &Plugin{As: "plugin", Timeout: p.KMS().Timeout, Parts: map[bundle.Part][]byte{}}
	for _, part := range plugin.Parts() {
		r.Plugin.Parts[part] = plugin.Content(part)
	}
	r.Plugin.Settings, err = json.Marshal(plugin.Settings())
	return r, err
}
