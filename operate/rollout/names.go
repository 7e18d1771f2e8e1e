package rollout

import (
	"slices"
	"strings"

	"github.com/kube-atrest/atrest/config"
	"github.com/kube-atrest/atrest/operate/audit"
	"github.com/kube-atrest/atrest/operate/rotation"
)

// namesOf are the names that a rotation has for a provider: of one with several keys
// as many, the one that writes first.
func namesOf(p *config.Provider) []string {
	switch {
	case p.Kind().IsKMS():
		return []string{p.KMS().Name}
	case p.Kind() == config.Identity:
		return []string{rotation.Plain}
	}
	var all []string
	for _, key := range p.Keys() {
		all = append(all, string(p.Kind())+":"+key.Name)
	}
	return all
}

// nameOf is the one of what stores in a form, or empty.
func nameOf(f audit.Form) string {
	switch f.Kind {
	case config.KMSv1, config.KMSv2:
		return f.Name
	case audit.Plaintext:
		return rotation.Plain
	case config.AESCBC, config.AESGCM, config.Secretbox:
		return string(f.Kind) + ":" + f.Name
	}
	return ""
}

// among reports whether one of the providers has one of the names.
func among(providers []*config.Provider, names []string) bool {
	return slices.ContainsFunc(providers, func(p *config.Provider) bool {
		return slices.ContainsFunc(namesOf(p), func(name string) bool { return slices.Contains(names, name) })
	})
}

// has reports whether a configuration has a provider or key.
func has(c *config.Configuration, name string) bool { return among(c.Providers(), []string{name}) }

// expected are names as an audit wants them, by kind.
func expected(names []string) audit.Names {
	all := audit.Names{}
	for _, name := range names {
		if kind, key, local := rotation.Local(name); local {
			all[config.Kind(kind)] = append(all[config.Kind(kind)], key)
			continue
		}
		for _, kind := range []config.Kind{config.KMSv1, config.KMSv2} {
			all[kind] = append(all[kind], name)
		}
	}
	return all
}

// shownNames are names for people.
func shownNames(names []string) string {
	return strings.ReplaceAll(strings.Join(names, ", "), rotation.Plain, "identity")
}
