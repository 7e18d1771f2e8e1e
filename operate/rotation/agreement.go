package rotation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Lack is why the key_id that an instance has of a provider does not count: it
// tells nothing of the provider, or its plugin is not healthy, which Problem is
// about, or it is and named no key_id yet.
type Lack struct {
	Provider      string
	Told, Healthy bool
	Problem       string
}

// Lacks are those of an instance, in the order of the providers. Without any,
// the key_ids that it has of them count.
func (i Instance) Lacks(providers []string) []Lack {
	var all []Lack
	for _, name := range providers {
		if p, told := i.Providers[name]; !p.Healthy || p.KeyID == "" {
			all = append(all, Lack{Provider: name, Told: told, Healthy: p.Healthy, Problem: p.Problem})
		}
	}
	return all
}

// Holders are the instances, sorted, that have a key_id of one of the providers
// from a healthy plugin, by the hash of it. One key_id is agreement, of those
// without a [Lack].
func Holders(instances map[string]Instance, providers []string) map[string][]string {
	return holders(instances, providers, func(p Provider) bool { return p.Healthy })
}

func holders(instances map[string]Instance, providers []string, counts func(Provider) bool) map[string][]string {
	by := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(instances)) {
		for _, provider := range providers {
			p := instances[name].Providers[provider]
			if p.KeyID != "" && counts(p) && !slices.Contains(by[p.KeyID], name) {
				by[p.KeyID] = append(by[p.KeyID], name)
			}
		}
	}
	return by
}

// CurrentKeyID is the hash of the one key_id that all instances have of all the
// providers, healthy or not: the one that a rotation is to leave.
func CurrentKeyID(instances map[string]Instance, providers []string) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(instances)) {
		for _, provider := range providers {
			switch i := instances[name]; {
			case i.Providers[provider].KeyID != "":
			case i.Problem != "":
				return "", fmt.Errorf("key_id of provider %q at %s: %s", provider, name, i.Problem)
			case i.Providers[provider].Problem != "":
				return "", fmt.Errorf("key_id of provider %q at %s is not known: %s; mend that, or name a key_id with --from", provider, name, i.Providers[provider].Problem)
			default:
				return "", fmt.Errorf("key_id of provider %q at %s is not known: wait until its plugin is healthy, or name a key_id with --from", provider, name)
			}
		}
	}
	keyIDs := slices.Sorted(maps.Keys(holders(instances, providers, func(Provider) bool { return true })))
	switch len(keyIDs) {
	case 0:
		return "", nil
	case 1:
		return keyIDs[0], nil
	}
	return "", fmt.Errorf("the apiservers have several key_ids of provider %s, among them %s and %s: a rotation is under way already; "+
		"name the key_id to be left with --from, or leave out --from", strings.Trim(fmt.Sprintf("%q", providers), "[]"), keyIDs[0], keyIDs[1])
}
